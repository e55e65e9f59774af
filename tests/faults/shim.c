/* Counts what a process does to the files below one folder, and at one of these calls fails it or kills the process.
 *
 * Loaded by LD_PRELOAD, so that also what native code, SQLite and git do is counted. The controlling process maps the same
 * struct (tests/faults/injector.py); all processes that it starts share the one counter. Not seen: stdio's own flushes,
 * memory-mapped writes, system calls without the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { KILL = -1, CLOCK = -2, A_DAY = 86400 };

struct control {
    atomic_long count;   /* calls so far */
    long target;         /* the call that fails, from 1; 0: none */
    int error;           /* its errno, KILL, or CLOCK: it happens, and from then on the clock is a day behind */
    int lasts;           /* 1: from then on every call that takes space fails, as on a disk that stays full */
    int is_active;
    atomic_int has_failed;
    char root[1024];     /* the folder whose calls count */
    char log[1024];      /* a file that each call is written to, with its data; empty: none */
    char fired[4096];    /* the call that failed */
};

static struct control *control;
static __thread int inside;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("MLTRAINER_FAULTS");
    if (!path) return;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return;
    void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (found != MAP_FAILED) control = found;
}

/* --- where in the program ---------------------------------------------------------------------- */

typedef void *object;
#define PYTHON(type, name, ...) type (*name)(__VA_ARGS__) = (type(*)(__VA_ARGS__))dlsym(RTLD_DEFAULT, #name)

/* Writes the innermost line of mltrainer's, of one that is no general writer if there is any; else the program's name. */
static void site(char *text, size_t size) {
    snprintf(text, size, "%s", program_invocation_short_name);
    PYTHON(int, Py_IsInitialized, void);
    if (!Py_IsInitialized || !Py_IsInitialized()) return;
    PYTHON(int, PyGILState_Ensure, void);
    PYTHON(void, PyGILState_Release, int);
    PYTHON(object, PyEval_GetFrame, void);
    PYTHON(object, PyFrame_GetCode, object);
    PYTHON(object, PyFrame_GetBack, object);
    PYTHON(int, PyFrame_GetLineNumber, object);
    PYTHON(object, PyObject_GetAttrString, object, const char *);
    PYTHON(const char *, PyUnicode_AsUTF8, object);
    PYTHON(void, Py_DecRef, object);
    PYTHON(void, Py_IncRef, object);
    PYTHON(void, PyErr_Fetch, object *, object *, object *);
    PYTHON(void, PyErr_Restore, object, object, object);
    int state = PyGILState_Ensure();
    int known = 0;
    object a, b, c, frame = PyEval_GetFrame();
    PyErr_Fetch(&a, &b, &c);
    if (frame) Py_IncRef(frame);
    while (frame) {
        object code = PyFrame_GetCode(frame), name = PyObject_GetAttrString(code, "co_filename");
        const char *file = name ? PyUnicode_AsUTF8(name) : NULL;
        const char *own = file ? strstr(file, "/mltrainer/") : NULL;
        int general = own && (strstr(own, "/workspace.py") || strstr(own, "/leftovers.py"));
        if (own && (!known || !general)) snprintf(text, size, "%s:%d", own + 1, PyFrame_GetLineNumber(frame));
        known |= own != NULL;
        object back = own && !general ? NULL : PyFrame_GetBack(frame);
        if (name) Py_DecRef(name);
        Py_DecRef(code);
        Py_DecRef(frame);
        frame = back;
    }
    PyErr_Restore(a, b, c);
    PyGILState_Release(state);
}

/* --- counting ----------------------------------------------------------------------------------- */

static int below(const char *path) {
    size_t length = strlen(control->root);
    return length && !strncmp(path, control->root, length) && (path[length] == '/' || !path[length]);
}

static int of_descriptor(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return path[0] == '/';
}

static int whole(int folder, const char *name, char *path, size_t size) {
    if (!name) return 0;
    if (name[0] == '/') return snprintf(path, size, "%s", name) < (int)size;
    char base[4096];
    if (folder == AT_FDCWD ? !getcwd(base, sizeof base) : !of_descriptor(folder, base, sizeof base)) return 0;
    return snprintf(path, size, "%s/%s", base, name) < (int)size;
}

static void logged(const char *op, long number, const char *where, const char *path, const char *to, long at, const void *data,
                   size_t size) {
    if (!control->log[0]) return;
    int fd = syscall(SYS_openat, AT_FDCWD, control->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    char head[9000];
    int length = snprintf(head, sizeof head, "%ld\t%d\t%s\t%s\t%s\t%s\t%ld\t%zu\n", number, getpid(), op, where, path, to, at,
                          data ? size : 0);
    struct iovec parts[] = {{head, length}, {(void *)data, data ? size : 0}, {"\n", 1}};
    syscall(SYS_writev, fd, parts, 3);
    syscall(SYS_close, fd);
}

static int is(const char *op, const char *one, const char *other, const char *third) {
    return !strcmp(op, one) || !strcmp(op, other) || !strcmp(op, third);
}

/* Whether Linux can answer so: only what takes space finds a full disk, and an open file is no longer denied. */
static int can_be(const char *op, int error) {
    if (error == ENOSPC) return is(op, "write", "mkdir", "create");
    return error != EACCES || !is(op, "write", "fsync", "truncate");
}

/* Counts a call; returns 0 to let it happen, an errno to fail it, KILL to die of it. */
static int counted(const char *op, const char *path, const char *to, long at, const void *data, size_t size) {
    if (inside || !control || !control->is_active || !(below(path) || (to[0] && below(to)))) return 0;
    int before = errno, answer = 0;
    inside = 1;
    long number = atomic_fetch_add(&control->count, 1) + 1;
    /* The order of several processes' calls is another each time: the next call that can fail so takes the place. */
    int fails = control->target && number >= control->target && can_be(op, control->error) && !atomic_exchange(&control->has_failed, 1);
    char where[512] = "";
    if (control->log[0] || fails) site(where, sizeof where);
    logged(op, number, where, path, to, at, data, size);
    if (fails) {
        snprintf(control->fired, sizeof control->fired, "%s\t%s\t%s", op, where, path);
        answer = control->error == CLOCK ? 0 : control->error;
    } else if (control->lasts && control->has_failed && can_be(op, control->error)) {
        answer = control->error;
    }
    inside = 0;
    errno = before;
    return answer;
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* What a call returns that must not happen. */
static int refused(int answer) {
    if (answer == KILL) die();
    errno = answer;
    return -1;
}

static int at_path(const char *op, int folder, const char *name, const char *to, long at) {
    char path[4096];
    if (!control || inside || !whole(folder, name, path, sizeof path)) return 0;
    return counted(op, path, to, at, NULL, 0);
}

static int is_there(const char *path) {
    struct stat found;
    int before = errno, answer = stat(path, &found) == 0;
    errno = before;
    return answer;
}

/* --- the calls ---------------------------------------------------------------------------------- */

static int opening(int folder, const char *name, int flags) {
    char path[4096];
    if (!control || inside || !control->is_active || !whole(folder, name, path, sizeof path)) return 0;
    return counted(flags & O_CREAT && !is_there(path) ? "create" : flags & O_TRUNC ? "empty" : flags & (O_WRONLY | O_RDWR) ? "open" : "read", path, "", 0, NULL, 0);
}

#define MODE                                          \
    mode_t mode = 0;                                  \
    if (flags & (O_CREAT | __O_TMPFILE)) {            \
        va_list rest;                                 \
        va_start(rest, flags);                        \
        mode = va_arg(rest, mode_t);                  \
        va_end(rest);                                 \
    }

#define OPEN(name)                                                \
    int name(const char *path, int flags, ...) {                  \
        MODE                                                      \
        int answer = opening(AT_FDCWD, path, flags);              \
        return answer ? refused(answer) : REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                       \
    int name(int folder, const char *path, int flags, ...) {               \
        MODE                                                               \
        int answer = opening(folder, path, flags);                         \
        return answer ? refused(answer) : REAL(name)(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

static int flags_of(const char *mode) {
    if (mode[0] == 'w') return O_WRONLY | O_CREAT | O_TRUNC;
    if (mode[0] == 'a') return O_WRONLY | O_CREAT;
    return strchr(mode, '+') ? O_RDWR : O_RDONLY;
}

#define FOPEN(name)                                                      \
    FILE *name(const char *path, const char *mode) {                     \
        int answer = opening(AT_FDCWD, path, flags_of(mode));            \
        if (answer) {                                                    \
            refused(answer);                                             \
            return NULL;                                                 \
        }                                                                \
        return REAL(name)(path, mode);                                   \
    }
FOPEN(fopen)
FOPEN(fopen64)

static int of_file(const char *op, int fd, long at, const void *data, size_t size) {
    char path[4096];
    if (!control || inside || !control->is_active) return 0;
    int before = errno, known = of_descriptor(fd, path, sizeof path);
    errno = before;
    return known ? counted(op, path, "", at, data, size) : 0;
}

static long position(int fd) {
    struct stat found;
    if (!control || !control->is_active || !control->log[0]) return 0;
    int before = errno, flags = fcntl(fd, F_GETFL);
    long at = flags >= 0 && flags & O_APPEND ? (fstat(fd, &found), (long)found.st_size) : (long)lseek(fd, 0, SEEK_CUR);
    errno = before;
    return at;
}

/* Half of the bytes are written where the process dies or the disk is full: what a reader may find then. */
static ssize_t cut(int answer, int fd, const void *data, size_t size, long at) {
    ssize_t written = -1;
    if ((answer == KILL || answer == ENOSPC) && size > 1)
        written = at < 0 ? syscall(SYS_write, fd, data, size / 2) : syscall(SYS_pwrite64, fd, data, size / 2, at);
    if (answer == ENOSPC && written > 0) return written;
    return refused(answer);
}

ssize_t write(int fd, const void *data, size_t size) {
    int answer = of_file("write", fd, position(fd), data, size);
    return answer ? cut(answer, fd, data, size, -1) : REAL(write)(fd, data, size);
}

#define PWRITE(name, offset)                                                     \
    ssize_t name(int fd, const void *data, size_t size, offset at) {             \
        int answer = of_file("write", fd, at, data, size);                       \
        return answer ? cut(answer, fd, data, size, at) : REAL(name)(fd, data, size, at); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

/* A part at a time, as a short write: only so is all of it counted. */
ssize_t writev(int fd, const struct iovec *parts, int number) {
    if (!control || inside || !control->is_active) return REAL(writev)(fd, parts, number);
    while (number > 1 && !parts->iov_len) parts++, number--;
    return number ? write(fd, parts->iov_base, parts->iov_len) : 0;
}

/* Not here: a program then copies by read and write, which are counted with their data. */
#define COPY(name, offset)                                                    \
    ssize_t name(int to, int from, offset *at, size_t size) {                 \
        if (!control || !control->is_active) return REAL(name)(to, from, at, size); \
        errno = EINVAL;                                                       \
        return -1;                                                            \
    }
COPY(sendfile, off_t)
COPY(sendfile64, off64_t)

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t size, unsigned flags) {
    if (!control || !control->is_active) return REAL(copy_file_range)(from, at, to, there, size, flags);
    errno = EXDEV;
    return -1;
}

#define SYNC(name)                                         \
    int name(int fd) {                                     \
        int answer = of_file("fsync", fd, 0, NULL, 0);     \
        return answer ? refused(answer) : REAL(name)(fd);  \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name, offset)                               \
    int name(int fd, offset size) {                          \
        int answer = of_file("truncate", fd, size, NULL, 0); \
        return answer ? refused(answer) : REAL(name)(fd, size); \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

static int renaming(const char *op, int folder, const char *name, int other, const char *to) {
    char path[4096];
    if (!control || inside || !whole(other, to, path, sizeof path)) return 0;
    return at_path(op, folder, name, path, 0);
}

int rename(const char *from, const char *to) {
    int answer = renaming("rename", AT_FDCWD, from, AT_FDCWD, to);
    return answer ? refused(answer) : REAL(rename)(from, to);
}

int renameat(int folder, const char *from, int other, const char *to) {
    int answer = renaming("rename", folder, from, other, to);
    return answer ? refused(answer) : REAL(renameat)(folder, from, other, to);
}

int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
    int answer = renaming("rename", folder, from, other, to);
    return answer ? refused(answer) : REAL(renameat2)(folder, from, other, to, flags);
}

int link(const char *from, const char *to) {
    int answer = renaming("link", AT_FDCWD, from, AT_FDCWD, to);
    return answer ? refused(answer) : REAL(link)(from, to);
}

int linkat(int folder, const char *from, int other, const char *to, int flags) {
    int answer = renaming("link", folder, from, other, to);
    return answer ? refused(answer) : REAL(linkat)(folder, from, other, to, flags);
}

int symlink(const char *text, const char *path) {
    int answer = at_path("create", AT_FDCWD, path, "", 0);
    return answer ? refused(answer) : REAL(symlink)(text, path);
}

int unlink(const char *path) {
    int answer = at_path("unlink", AT_FDCWD, path, "", 0);
    return answer ? refused(answer) : REAL(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags) {
    int answer = at_path(flags & AT_REMOVEDIR ? "rmdir" : "unlink", folder, path, "", 0);
    return answer ? refused(answer) : REAL(unlinkat)(folder, path, flags);
}

int rmdir(const char *path) {
    int answer = at_path("rmdir", AT_FDCWD, path, "", 0);
    return answer ? refused(answer) : REAL(rmdir)(path);
}

/* A folder that is there is not made: nothing can fail but for that. */
int mkdir(const char *path, mode_t mode) {
    int answer = is_there(path) ? 0 : at_path("mkdir", AT_FDCWD, path, "", 0);
    return answer ? refused(answer) : REAL(mkdir)(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    int answer = at_path("mkdir", folder, path, "", 0);
    return answer ? refused(answer) : REAL(mkdirat)(folder, path, mode);
}

/* --- the clock ---------------------------------------------------------------------------------- */

static int behind(void) { return control && control->is_active && control->error == CLOCK && control->has_failed ? A_DAY : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = REAL(clock_gettime);
    int answer = real(clock, now);
    if (!answer && clock == CLOCK_REALTIME) now->tv_sec -= behind();
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int answer = REAL(gettimeofday)(now, zone);
    if (!answer) now->tv_sec -= behind();
    return answer;
}

time_t time(time_t *now) {
    time_t found = REAL(time)(NULL) - behind();
    if (now) *now = found;
    return found;
}
