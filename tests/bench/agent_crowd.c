/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps processes that sleep or wake up once a second, and replaces some of them by new ones.
 *
 *     agent_crowd ALIVE REPLACED_PER_S AWAKE
 *
 * Writes a line once they live, then the number of those started so far for each line that it reads; ends with its input.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEP_MS 20

static void sleep_ms(long ms)
{
	struct timespec length = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&length, NULL);
}

static pid_t start(long number, int awake)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!awake)
		pause();
	sleep_ms(number * 37 % 1000);
	for (;;)
		sleep_ms(1000);
}

static long replace(pid_t *crowd, long alive, long started, long count, int awake)
{
	for (; count > 0; count--, started++) {
		pid_t *oldest = &crowd[started % alive];

		kill(*oldest, SIGKILL);
		waitpid(*oldest, NULL, 0);
		*oldest = start(started, awake);
	}
	return started;
}

int main(int argc, char **argv)
{
	long alive = argc == 4 ? atol(argv[1]) : 0;
	long per_s = argc == 4 ? atol(argv[2]) : 0;
	int awake = argc == 4 && atoi(argv[3]);
	struct pollfd input = {0, POLLIN, 0};
	pid_t *crowd = alive > 0 ? calloc(alive, sizeof(*crowd)) : NULL;
	long started = 0;
	char line[64];

	if (!crowd)
		return 2;
	while (started < alive) {
		crowd[started] = start(started, awake);
		if (crowd[started++] < 0)
			return 1;
	}
	for (;;) {
		printf("%ld\n", started);
		fflush(stdout);
		while (!poll(&input, 1, per_s ? STEP_MS : -1))
			started = replace(crowd, alive, started, per_s * STEP_MS / 1000, awake);
		if (read(0, line, sizeof(line)) <= 0)
			return 0;
	}
}
