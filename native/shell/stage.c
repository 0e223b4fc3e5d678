// A stage of a pipeline that may run elsewhere: asks the agent, then becomes the real command, or stands in for it and
// passes its output, its input and its status on. Signals end it as they would end the command; the agent then ends that.
#include "session.h"

#include <dirent.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <sys/auxv.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define DECIDE_MS 10000      // a site that is being connected to; an agent that dies is noticed at once
#define CHUNK (256 << 10)
#define LOST 255             // status of a command whose connection was lost

extern char **environ;

static struct table *table;
static int agent = -1;
static char *path, **command;
static unsigned long outer[3];
static char run[256], table_path[PATH_MAX];
static int keeps_hook;  // the command may start others
static int on_path;     // started by its name on the PATH of a shell that loads no hook

static _Noreturn void run_here(void) {
    if (agent >= 0) close(agent);
    if (keeps_hook && on_path) {
        setenv(TABLE_VARIABLE, table_path, 1);
        setenv(RUN_VARIABLE, run, 1);
    } else if (keeps_hook) {
        char value[2 * PATH_MAX];
        const char *others = getenv("LD_PRELOAD");
        snprintf(value, sizeof value, "%s%s%s", table->hook, others && *others ? ":" : "", others ? others : "");
        setenv("LD_PRELOAD", value, 1);
        setenv(TABLE_VARIABLE, table_path, 1);
        setenv(RUN_VARIABLE, run, 1);
    }
    execve(path, command, environ);
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

// --- what is told of a command ---

static char *letter;
static size_t letter_used, letter_size;

static void put(const void *data, size_t size) {
    if (letter_used + size > letter_size) {
        letter_size = 2 * (letter_used + size) + 4096;
        letter = realloc(letter, letter_size);
        if (!letter) run_here();
    }
    memcpy(letter + letter_used, data, size);
    letter_used += size;
}

static void put_text(const char *text) {
    uint32_t size = (uint32_t)strlen(text);
    put(&size, 4);
    put(text, size);
}

static void put_list(char **list) {
    uint32_t used = 0;
    while (list[used]) used++;
    put(&used, 4);
    for (uint32_t at = 0; at < used; at++) put_text(list[at]);
}

// Whether `fd` here and `theirs` in the parent are one open file, so that reading from one moves the other.
static int is_same(pid_t parent, int fd, int theirs) {
    return syscall(SYS_kcmp, getpid(), parent, KCMP_FILE, fd, theirs) == 0;
}

// Whether a process has the open file under any number, but not this one's own `fd`.
static int is_shared_within(pid_t process, int fd) {
    char folder[64];
    snprintf(folder, sizeof folder, "/proc/%d/fd", process);
    DIR *found = opendir(folder);
    if (!found) return 1;
    int shared = 0;
    for (struct dirent *one; !shared && (one = readdir(found));)
        if (one->d_name[0] != '.' && !(process == getpid() && atoi(one->d_name) == fd))
            shared = is_same(process, fd, atoi(one->d_name));
    closedir(found);
    return shared;
}

static int is_shared(pid_t parent, int fd, int is_pipe) {
    return is_pipe ? is_same(parent, fd, fd) : is_shared_within(parent, fd);
}

// Whether another process may write to the file that is stdout, at the same place in it: the parent, a child of what this
// process was before, or who got another number of it.
static int is_output_shared(pid_t parent) {
    siginfo_t info;
    if (is_shared(parent, 1, 0) || !waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT)) return 1;
    return is_shared_within(getpid(), 1);
}

static void put_fd(pid_t parent, int fd) {
    char text[PATH_MAX + 128], where[PATH_MAX];
    struct stat found, null;
    int flags = fcntl(fd, F_GETFL);
    if (fstat(fd, &found)) snprintf(text, sizeof text, "closed");
    else if (S_ISFIFO(found.st_mode))
        snprintf(text, sizeof text, "%s %lu %d", found.st_ino == outer[fd] ? "outer" : "pipe",
                 (unsigned long)found.st_ino, is_shared(parent, fd, 1));
    else if (S_ISREG(found.st_mode) && !path_of_fd(fd, where, sizeof where))
        snprintf(text, sizeof text, "file %d %d %lld %lu:%lu %s", flags,
                 fd == 0 ? is_shared(parent, fd, 0) : fd == 1 && is_output_shared(parent),
                 (long long)lseek(fd, 0, SEEK_CUR), (unsigned long)found.st_dev, (unsigned long)found.st_ino, where);
    else if (S_ISCHR(found.st_mode) && !stat("/dev/null", &null) && null.st_rdev == found.st_rdev)
        snprintf(text, sizeof text, "null");
    else snprintf(text, sizeof text, isatty(fd) ? "terminal" : "other");
    put_text(text);
}

static int is_ignored(int number) {
    struct sigaction found;
    return !sigaction(number, NULL, &found) && found.sa_handler == SIG_IGN;
}

static int is_one_output(void) { return syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, 1, 2) == 0; }

static void describe(void) {
    char cwd[PATH_MAX], text[128];
    pid_t parent = getppid();
    uint32_t size = 0;
    mode_t mask = umask(0);
    umask(mask);
    put("R", 1);
    put(&size, 4);
    put_text(run);
    put_text(path);
    put_text(getcwd(cwd, sizeof cwd) ? cwd : "");
    struct rlimit memory = {0}, file = {0}, cpu = {0};
    getrlimit(RLIMIT_AS, &memory);
    getrlimit(RLIMIT_FSIZE, &file);
    getrlimit(RLIMIT_CPU, &cpu);
    snprintf(text, sizeof text, "%d %d %d %d %d %d", getpid(), parent, mask, is_one_output(), is_ignored(SIGPIPE),
             memory.rlim_cur != RLIM_INFINITY || file.rlim_cur != RLIM_INFINITY || cpu.rlim_cur != RLIM_INFINITY);
    put_text(text);
    for (int fd = 0; fd < 3; fd++) put_fd(parent, fd);
    put_list(command);
    put_list(environ);
    size = (uint32_t)letter_used - 5;
    memcpy(letter + 1, &size, 4);
}

// What this process may still have to write to a site is there before a command reads it there.
static void flush_sites(void) {
    DIR *found = opendir("/proc/self/fd");
    if (!found) return;
    char where[PATH_MAX];
    for (struct dirent *one; (one = readdir(found));) {
        int fd = atoi(one->d_name);
        if (one->d_name[0] == '.' || fd == dirfd(found) || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) continue;
        if (!path_of_fd(fd, where, sizeof where) && site_of(table, where)) fsync(fd);
    }
    closedir(found);
}

// --- frames: a letter, the size of what follows, and that ---

static int send_all(const void *data, size_t size) {
    while (size) {
        ssize_t sent = send(agent, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            struct pollfd wait = {agent, POLLOUT, 0};
            poll(&wait, 1, -1);
            continue;
        }
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return -1;
        data = (const char *)data + sent;
        size -= (size_t)sent;
    }
    return 0;
}

static int send_frame(char kind, const void *data, uint32_t size) {
    char head[5] = {kind};
    memcpy(head + 1, &size, 4);
    return send_all(head, 5) || (size && send_all(data, size)) ? -1 : 0;
}

static int receive_all(void *data, size_t size, int limit_ms) {
    while (size) {
        ssize_t got = recv(agent, data, size, 0);
        if (got < 0 && errno == EAGAIN) {
            struct pollfd wait = {agent, POLLIN, 0};
            if (!poll(&wait, 1, limit_ms)) return -1;
            continue;
        }
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        data = (char *)data + got;
        size -= (size_t)got;
    }
    return 0;
}

static char receive_head(uint32_t *size, int limit_ms) {
    char head[5];
    if (receive_all(head, 5, limit_ms)) return 0;
    memcpy(size, head + 1, 4);
    return head[0];
}

// --- standing in for it ---

static char buffer[CHUNK];
static int again = 1;      // nothing went out or came in yet, and nothing is changed by it: it may be run here
static int failed_status;  // of the command when it cannot write

static _Noreturn void end(int status) {
    if (status >= 0) _exit(status);
    struct rlimit none = {0, 0};
    sigset_t all;
    setrlimit(RLIMIT_CORE, &none);
    signal(-status, SIG_DFL);
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    kill(getpid(), -status);
    _exit(128 - status);
}

static _Noreturn void lose(const char *why) {
    if (again) run_here();
    fprintf(stderr, "shoal: %s: %s\n", command[0] ? command[0] : path, why);
    _exit(LOST);
}

static void write_out(int fd, uint32_t size) {
    while (size) {
        uint32_t part = size < CHUNK ? size : CHUNK;
        if (receive_all(buffer, part, -1)) lose("the connection to the site was lost");
        size -= part;
        again = 0;
        for (uint32_t done = 0; done < part;) {
            ssize_t wrote = write(fd, buffer + done, part - done);
            if (wrote < 0 && errno == EAGAIN) {
                struct pollfd wait = {fd, POLLOUT, 0};
                poll(&wait, 1, -1);
            } else if (wrote < 0 && errno != EINTR) {
                fprintf(stderr, "%s: write error: %s\n", base_of(command[0]), strerror(errno));
                _exit(failed_status);
            } else if (wrote > 0) {
                done += (uint32_t)wrote;
            }
        }
    }
}

static void stand_in(void) {
    uint32_t credit = 0, size;
    int ended = 0;
    for (;;) {
        struct pollfd wait[2] = {{agent, POLLIN, 0}, {credit && !ended ? 0 : -1, POLLIN, 0}};
        if (poll(wait, 2, -1) < 0 && errno != EINTR) lose(strerror(errno));
        if (wait[0].revents) {
            uint32_t number;
            char kind = receive_head(&size, -1);
            if (kind == 'O' || kind == 'E') {
                write_out(kind == 'O' ? 1 : 2, size);
            } else if (kind == 'H' && !size) {
                run_here();
            } else if ((kind == 'S' || kind == 'X') && size == 4 && !receive_all(&number, 4, -1)) {
                if (kind == 'X') end((int)number);
                credit += number;
            } else {
                lose("the agent ended");
            }
            continue;
        }
        if (wait[1].revents) {
            ssize_t got = read(0, buffer, credit < CHUNK ? credit : CHUNK);
            if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
            ended = got <= 0;
            if (got > 0) again = 0;
            credit -= got > 0 ? (uint32_t)got : 0;
            if (send_frame(ended ? 'e' : 'i', buffer, ended ? 0 : (uint32_t)got)) lose("the agent ended");
        }
    }
}

// The program that a name on the PATH means without the folder of this session.
static void find_real(const char *name) {
    static char found[PATH_MAX];
    char programs[PATH_MAX];
    programs_of(table, programs, sizeof programs);
    path = (char *)look_up(name, found, sizeof found, programs);
    if (!path) {
        fprintf(stderr, "%s: command not found\n", name);
        _exit(127);
    }
}

int main(int count, char **argv) {
    const char *started = base_of((const char *)getauxval(AT_EXECFN));
    on_path = strcmp(started, "shoal-stage") != 0;
    if (!on_path && count < 3) {
        fprintf(stderr, "shoal-stage is started by a shell of `shoal shell`, not by hand\n");
        return 2;
    }
    path = on_path ? NULL : argv[1];
    command = on_path ? argv : argv + 2;
    const char *where = getenv(TABLE_VARIABLE), *session = getenv(RUN_VARIABLE);
    if (where) snprintf(table_path, sizeof table_path, "%s", where);
    if (session) snprintf(run, sizeof run, "%s", session);
    table = where && session ? map_table(table_path) : NULL;
    unsetenv(TABLE_VARIABLE);
    unsetenv(RUN_VARIABLE);
    if (!table && on_path) {
        fprintf(stderr, "%s: no session of `shoal shell` runs here\n", started);
        return 127;
    }
    if (!table) run_here();
    char programs[PATH_MAX];
    programs_of(table, programs, sizeof programs);
    if (on_path || is_under(path, programs)) find_real(on_path ? started : base_of(path));
    read_outer(run, outer);
    const struct name *name = find_name(table, base_of(path));
    keeps_hook = !name || !name->leaf;
    if (on_path && !asks_agent(table, path, command, outer)) run_here();
    if (strncmp(run, DRY, strlen(DRY)) && concern_of(table, command, outer) == NOTHING) run_here();
    flush_sites();
    if ((agent = connect_agent(table->folder)) < 0) run_here();
    describe();
    if (send_all(letter, letter_used)) run_here();
    uint32_t size;
    // By single milliseconds: where this process itself gets the processor late, so does the agent.
    struct pollfd answer = {agent, POLLIN, 0};
    for (uint32_t waited = 0; waited < table->patience_ms && !poll(&answer, 1, 1);) waited++;
    char kind = receive_head(&size, 0);
    if (kind == 'A') kind = receive_head(&size, DECIDE_MS);
    unsigned char facts[2];
    if (kind != 'T' || size != 2 || receive_all(facts, 2, DECIDE_MS)) run_here();
    again = facts[0];
    failed_status = facts[1];
    free(letter);
    send_frame('g', NULL, 0);  // nothing is passed on, and nothing changed over there, before every stage has said that it waits
    stand_in();
}
