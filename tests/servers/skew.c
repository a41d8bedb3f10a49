/* Shifts the wall clock of a process and of its children, and nothing else: the monotonic and the boot-time
   clock and every sleep stay true. Loaded by LD_PRELOAD; built and used by skew.py beside it.

   SKEW=65         so many seconds, may be negative
   SKEW_FILE=path  the seconds stand in the file, which is read at every call: a clock that steps or drifts */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long shift(void) {
  static int asked;
  static const char *path;
  static double constant;
  if (!asked) {
    const char *given = getenv("SKEW");
    constant = given ? atof(given) : 0;
    path = getenv("SKEW_FILE");
    asked = 1;
  }
  double seconds = constant;
  if (path) {
    char text[64];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
      ssize_t length = read(file, text, sizeof text - 1);
      close(file);
      if (length > 0) {
        text[length] = 0;
        seconds = atof(text);
      }
    }
  }
  return (long long)(seconds * 1e9);
}

static int true_time(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  return real(clock, time);
}

static void shifted(struct timespec *time) {
  long long at = time->tv_sec * 1000000000LL + time->tv_nsec + shift();
  time->tv_sec = at / 1000000000LL;
  time->tv_nsec = at % 1000000000LL;
  if (time->tv_nsec < 0) {
    time->tv_nsec += 1000000000L;
    time->tv_sec--;
  }
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int failed = true_time(clock, time);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shifted(time);
  return failed;
}

int gettimeofday(struct timeval *restrict value, void *restrict zone) {
  struct timespec time;
  (void)zone;
  true_time(CLOCK_REALTIME, &time);
  shifted(&time);
  value->tv_sec = time.tv_sec;
  value->tv_usec = time.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  true_time(CLOCK_REALTIME, &now);
  shifted(&now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
  true_time(CLOCK_REALTIME, at);
  shifted(at);
  return base;
}
