"""A process that always wants the CPU: `python -m kernels.faults.bystander`."""


def main() -> None:
    """Compute until killed."""
    value = 1
    while True:
        value = (value * 1_103_515_245 + 12_345) % 2_147_483_648


if __name__ == "__main__":
    main()
