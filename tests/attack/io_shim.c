// Interposes the calls that change files (LD_PRELOAD), counts those below one folder, and lets one of them fail, write
// only part of its data, or kill the process.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, FAIL, FAIL_FROM_HERE_ON, SHORT, KILL };

static char folder[PATH_MAX];
static atomic_long counted;
static long target;  // the call to attack, from 1; 0 for none
static int action, error;

// Starts to count calls below `where`, and attacks call number `at`.
void shim_arm(const char* where, long at, int what, int number) {
    counted = 0;
    target = at;
    action = what;
    error = number;
    strncpy(folder, where, sizeof folder - 1);
}

long shim_count(void) {
    return counted;
}

static int below(const char* path) {
    return folder[0] && strncmp(path, folder, strlen(folder)) == 0;
}

static int below_fd(int fd) {
    char link[64], path[PATH_MAX];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

// Counts a call; returns what to do with it.
static int next(void) {
    const long number = ++counted;
    const int now = number == target || (action == FAIL_FROM_HERE_ON && target && number > target) ? action : NOTHING;
    if (now == FAIL || now == FAIL_FROM_HERE_ON) errno = error;
    return now;
}

#define REAL(name) static __typeof__(name)* real; if (!real) real = (__typeof__(name)*)dlsym(RTLD_NEXT, #name)
#define ATTACK(failed)                                                             \
    switch (next()) {                                                              \
        case FAIL: case FAIL_FROM_HERE_ON: return failed;                          \
        case KILL: kill(getpid(), SIGKILL); pause();                               \
        default: break;                                                            \
    }

ssize_t write(int fd, const void* data, size_t size) {
    REAL(write);
    if (below_fd(fd)) {
        switch (next()) {
            case FAIL: case FAIL_FROM_HERE_ON: return -1;
            case SHORT: return real(fd, data, size > 1 ? size / 2 : size);
            case KILL: real(fd, data, size / 2); kill(getpid(), SIGKILL); pause();
            default: break;
        }
    }
    return real(fd, data, size);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
    REAL(pwrite64);
    if (below_fd(fd)) ATTACK(-1);
    return real(fd, data, size, at);
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
    REAL(writev);
    if (below_fd(fd)) ATTACK(-1);
    return real(fd, parts, count);
}

int fsync(int fd) {
    REAL(fsync);
    if (below_fd(fd)) ATTACK(-1);
    return real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    if (below_fd(fd)) ATTACK(-1);
    return real(fd);
}

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    if (below_fd(fd)) ATTACK(-1);
    return real(fd, size);
}

int rename(const char* from, const char* to) {
    REAL(rename);
    if (below(to)) ATTACK(-1);
    return real(from, to);
}

int renameat(int from_fd, const char* from, int to_fd, const char* to) {
    REAL(renameat);
    if (below(to)) ATTACK(-1);
    return real(from_fd, from, to_fd, to);
}

int mkdir(const char* path, mode_t mode) {
    REAL(mkdir);
    if (below(path)) ATTACK(-1);
    return real(path, mode);
}

#define WRITES(flags) (((flags) & O_ACCMODE) != O_RDONLY)
#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int open(const char* path, int flags, ...) {
    REAL(open);
    MODE(flags)
    if (WRITES(flags) && below(path)) ATTACK(-1);
    return real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
    REAL(open64);
    MODE(flags)
    if (WRITES(flags) && below(path)) ATTACK(-1);
    return real(path, flags, mode);
}

int openat(int fd, const char* path, int flags, ...) {
    REAL(openat);
    MODE(flags)
    if (WRITES(flags) && below(path)) ATTACK(-1);
    return real(fd, path, flags, mode);
}

int openat64(int fd, const char* path, int flags, ...) {
    REAL(openat64);
    MODE(flags)
    if (WRITES(flags) && below(path)) ATTACK(-1);
    return real(fd, path, flags, mode);
}

FILE* fopen64(const char* path, const char* mode) {
    REAL(fopen64);
    if (mode[0] != 'r' && below(path)) ATTACK(NULL);
    return real(path, mode);
}
