/* Fails calls of libc on files below a folder, while a file says so. Preloaded into a program under test (../faults.rs).
 *
 *   FAULTS_BELOW     the folder
 *   FAULTS_CONTROL   absent: no fault. Otherwise `MODE SKIP COUNT`:
 *                      sync      fsync and fdatasync fail with EIO, after SKIP of them, COUNT times (0: all)
 *                      readonly  whatever changes a file fails with EROFS
 *   FAULTS_FAILED    gets the path of each call that failed, a line each
 *
 * The calls are made directly, so that this library needs no other symbol of libc's implementation. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Syncs below the folder since the control file appeared. */
static unsigned long syncs;

static int is_below(const char *path) {
  const char *folder = getenv("FAULTS_BELOW");
  size_t length = folder ? strlen(folder) : 0;
  return length && !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

/* Reads the control file; 0 if there is none. */
static int control(char mode[16], unsigned long *skip, unsigned long *count) {
  const char *path = getenv("FAULTS_CONTROL");
  char text[64];
  if (!path) return 0;
  long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return 0;
  long length = syscall(SYS_read, file, text, sizeof text - 1);
  syscall(SYS_close, file);
  if (length <= 0) return 0;
  text[length] = 0;
  return sscanf(text, "%15s %lu %lu", mode, skip, count) == 3;
}

static void record(const char *path) {
  const char *failed = getenv("FAULTS_FAILED");
  char line[PATH_MAX + 1];
  if (!failed) return;
  int length = snprintf(line, sizeof line, "%s\n", path);
  long file = syscall(SYS_openat, AT_FDCWD, failed, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  syscall(SYS_write, file, line, length);
  syscall(SYS_close, file);
}

static int path_of(int fd, char path[PATH_MAX]) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return 1;
}

static int fails_sync(int fd) {
  char mode[16], path[PATH_MAX];
  unsigned long skip, count;
  int fails = 0, saved = errno;
  pthread_mutex_lock(&lock);
  if (!control(mode, &skip, &count)) {
    syncs = 0;
  } else if (path_of(fd, path) && is_below(path)) {
    syncs++;
    if (!strcmp(mode, "sync") && syncs > skip && (!count || syncs <= skip + count)) {
      fails = EIO;
    } else if (!strcmp(mode, "readonly")) {
      fails = EROFS;
    }
    if (fails) record(path);
  }
  pthread_mutex_unlock(&lock);
  errno = fails ? fails : saved;
  return fails;
}

static int is_readonly(const char *path) {
  char mode[16];
  unsigned long skip, count;
  int saved = errno;
  int fails = path && is_below(path) && control(mode, &skip, &count) && !strcmp(mode, "readonly");
  if (fails) {
    pthread_mutex_lock(&lock);
    record(path);
    pthread_mutex_unlock(&lock);
  }
  errno = fails ? EROFS : saved;
  return fails;
}

static int is_readonly_fd(int fd) {
  char mode[16], path[PATH_MAX];
  unsigned long skip, count;
  int saved = errno;
  /* First, as most writes are of other files while there is no fault. */
  int is_armed = control(mode, &skip, &count);
  errno = saved;
  return is_armed && path_of(fd, path) && is_readonly(path);
}

int fsync(int fd) { return fails_sync(fd) ? -1 : syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return fails_sync(fd) ? -1 : syscall(SYS_fdatasync, fd); }

static int open_at(int folder, const char *path, int flags, mode_t mode) {
  int changes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
  if (changes && folder == AT_FDCWD && is_readonly(path)) return -1;
  return syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE_OF(flags)                           \
  mode_t mode = 0;                               \
  if ((flags) & (O_CREAT | __O_TMPFILE)) {       \
    va_list rest;                                \
    va_start(rest, flags);                       \
    mode = va_arg(rest, mode_t);                 \
    va_end(rest);                                \
  }

int open(const char *path, int flags, ...) { MODE_OF(flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return open_at(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE_OF(flags) return open_at(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE_OF(flags) return open_at(at, path, flags, mode); }

ssize_t write(int fd, const void *bytes, size_t length) {
  return is_readonly_fd(fd) ? -1 : syscall(SYS_write, fd, bytes, length);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
  return is_readonly_fd(fd) ? -1 : syscall(SYS_writev, fd, parts, count);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
  return is_readonly_fd(fd) ? -1 : syscall(SYS_pwrite64, fd, bytes, length, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
  return is_readonly_fd(fd) ? -1 : syscall(SYS_pwrite64, fd, bytes, length, at);
}
int ftruncate(int fd, off_t length) { return is_readonly_fd(fd) ? -1 : syscall(SYS_ftruncate, fd, length); }
int ftruncate64(int fd, off64_t length) { return is_readonly_fd(fd) ? -1 : syscall(SYS_ftruncate, fd, length); }
int rename(const char *from, const char *to) {
  return is_readonly(from) || is_readonly(to) ? -1 : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int unlink(const char *path) { return is_readonly(path) ? -1 : syscall(SYS_unlinkat, AT_FDCWD, path, 0); }
int mkdir(const char *path, mode_t mode) {
  return is_readonly(path) ? -1 : syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
int rmdir(const char *path) {
  return is_readonly(path) ? -1 : syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}
int linkat(int at, const char *from, int to_at, const char *to, int flags) {
  return is_readonly(to) ? -1 : syscall(SYS_linkat, at, from, to_at, to, flags);
}
