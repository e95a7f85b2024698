/* Loaded before libc (LD_PRELOAD): at a chosen one of the calls that change a disk, the process is
 * killed, half of a write being done, or the call fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/types.h>
#include <unistd.h>

static long count, chosen = -1;
static int error, once;

/* The call of this number, from now on, is the one: killed for error 0. With `once`, it alone. */
void fault_at(long number, int error_, int once_) {
    count = 0, chosen = number, error = error_, once = once_;
}

long fault_count(void) { return count; }

static int hit(void) {
    long number = __sync_fetch_and_add(&count, 1);
    return chosen >= 0 && (number == chosen || (number > chosen && error && !once));
}

static int fail(void) {
    if (!error) kill(getpid(), SIGKILL);
    errno = error;
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(name, parameters, ...) \
    int name parameters { return hit() ? fail() : REAL(name)(__VA_ARGS__); }

WRAP(fsync, (int fd), fd)
WRAP(rename, (const char *a, const char *b), a, b)
WRAP(unlink, (const char *a), a)
WRAP(unlinkat, (int fd, const char *a, int flags), fd, a, flags)
WRAP(rmdir, (const char *a), a)
WRAP(mkdir, (const char *a, mode_t mode), a, mode)
WRAP(ftruncate64, (int fd, off64_t size), fd, size)
WRAP(chmod, (const char *a, mode_t mode), a, mode)

ssize_t write(int fd, const void *data, size_t size) {
    if (fd > 2 && hit()) {
        if (!error) REAL(write)(fd, data, size / 2);
        return fail();
    }
    return REAL(write)(fd, data, size);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list list; \
        va_start(list, flags); \
        mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0; \
        va_end(list); \
        return flags & O_CREAT && hit() ? fail() : REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
