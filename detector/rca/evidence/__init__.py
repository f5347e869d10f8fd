"""Sources of evidence; each examines one kind of explanation."""
