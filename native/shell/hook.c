// Loaded into a shell and what it starts. Of each program that is started it asks: does it have an annotated name and to do
// with a site? Then `shoal-stage` is started in its place, which asks the agent. All else starts as it would.
#include "session.h"

#include <dlfcn.h>
#include <spawn.h>
#include <stdarg.h>

#define FACE __attribute__((visibility("default")))
#define EXTRA 4  // what a session adds to an environment, and the end

extern char **environ;

static int (*real_execve)(const char *, char *const[], char *const[]);
static int (*real_execvpe)(const char *, char *const[], char *const[]);
static int (*real_spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                         char *const[], char *const[]);
static int (*real_spawnp)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                          char *const[], char *const[]);

static struct table *table;
static char table_variable[PATH_MAX + 32], run_variable[256], preload[2 * PATH_MAX];
static unsigned long outer[3];
static int dry;  // nothing is run: all that would start registers with the agent and ends

// Scripts do not see the session in their environment: it is taken out here and given back at each start of a program. By
// hand, because bash has functions of its own under the names of the C library's.
static void hide(void) {
    size_t length = strlen(table->hook);
    char **kept = environ;
    for (char **one = environ; *one; one++) {
        if (!strncmp(*one, TABLE_VARIABLE "=", sizeof TABLE_VARIABLE) || !strncmp(*one, RUN_VARIABLE "=", sizeof RUN_VARIABLE))
            continue;
        char *list = *one + 11;
        if (!strncmp(*one, "LD_PRELOAD=", 11) && !strncmp(list, table->hook, length)) {
            if (!list[length]) continue;
            if (list[length] == ':') memmove(list, list + length + 1, strlen(list + length + 1) + 1);
        }
        *kept++ = *one;
    }
    *kept = NULL;
}

static const char *variable(const char *name) {
    size_t length = strlen(name);
    for (char **one = environ; one && *one; one++)
        if (!strncmp(*one, name, length) && (*one)[length] == '=') return *one + length + 1;
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    real_execve = (__typeof__(real_execve))dlsym(RTLD_NEXT, "execve");
    real_execvpe = (__typeof__(real_execvpe))dlsym(RTLD_NEXT, "execvpe");
    real_spawn = (__typeof__(real_spawn))dlsym(RTLD_NEXT, "posix_spawn");
    real_spawnp = (__typeof__(real_spawnp))dlsym(RTLD_NEXT, "posix_spawnp");
    const char *path = variable(TABLE_VARIABLE), *run = variable(RUN_VARIABLE);
    if (!path || !run || !(table = map_table(path))) return;
    snprintf(table_variable, sizeof table_variable, TABLE_VARIABLE "=%s", path);
    snprintf(run_variable, sizeof run_variable, RUN_VARIABLE "=%s", run);
    read_outer(run, outer);
    dry = !strncmp(run, DRY, strlen(DRY));
    hide();
}

static size_t count(char *const list[]) {
    size_t found = 0;
    while (list && list[found]) found++;
    return found;
}

// The environment with the session in it; `room` has space for EXTRA more entries.
static char *const *with_session(char *const env[], char **room, int loads_hook) {
    size_t used = 0;
    const char *others = NULL;
    for (size_t at = 0; env && env[at]; at++) {
        if (loads_hook && !strncmp(env[at], "LD_PRELOAD=", 11)) others = env[at] + 11;
        else room[used++] = env[at];
    }
    if (loads_hook) {
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s%s%s", table->hook, others && *others ? ":" : "",
                 others ? others : "");
        room[used++] = preload;
    }
    room[used++] = table_variable;
    room[used++] = run_variable;
    room[used] = NULL;
    return room;
}

// Space for pointers that a child of vfork may use: the stack for usual lists, else pages that stay.
#define ROOM(n) ((n) < 4096 ? alloca((n) * sizeof(char *)) : big_room(n))

static void *big_room(size_t n) {
    void *at = mmap(NULL, n * sizeof(char *), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int concerns(const char *path, char *const argv[]) {
    return dry ? is_program(path) : asks_agent(table, path, argv, outer);
}

static char *const *as_stage(const char *path, char *const argv[], char **room) {
    size_t used = count(argv);
    room[0] = "shoal-stage";
    room[1] = (char *)path;
    for (size_t at = 0; at <= used; at++) room[at + 2] = argv[at];
    return room;
}

FACE int execve(const char *path, char *const argv[], char *const env[]) {
    if (!table || !path || !argv) return real_execve(path, argv, env);
    const struct name *name = find_name(table, base_of(path));
    char **room = (char **)ROOM(count(env) + EXTRA);
    if (!room) return real_execve(path, argv, env);
    if ((name || dry) && concerns(path, argv)) {
        char **words = (char **)ROOM(count(argv) + 3);
        if (words) real_execve(table->stage, as_stage(path, argv, words), with_session(env, room, 0));
    }
    return real_execve(path, argv, name && name->leaf ? env : with_session(env, room, 1));
}

FACE int execvpe(const char *file, char *const argv[], char *const env[]) {
    if (!table || !file || !argv) return real_execvpe(file, argv, env);
    char path[PATH_MAX];
    const struct name *name = find_name(table, base_of(file));
    const char *found = name || dry ? look_up(file, path, sizeof path, NULL) : NULL;
    if (found) return execve(found, argv, env);
    char **room = (char **)ROOM(count(env) + EXTRA);
    return real_execvpe(file, argv, room ? with_session(env, room, 1) : env);
}

// In a dry run what a redirection would write goes nowhere.
static int open_as(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    if (dry && (flags & O_ACCMODE) != O_RDONLY) return real("/dev/null", O_WRONLY | (flags & O_CLOEXEC));
    return real(path, flags, mode);
}

#define OPEN(name)                                                                       \
    FACE int name(const char *path, int flags, ...) {                                    \
        static int (*real)(const char *, int, ...);                                      \
        if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, #name);                     \
        va_list list;                                                                    \
        va_start(list, flags);                                                           \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(list, unsigned) : 0; \
        va_end(list);                                                                    \
        return open_as(real, path, flags, mode);                                         \
    }
OPEN(open)
OPEN(open64)

FACE int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }
FACE int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

#define WORDS(last)                                            \
    va_list list, again;                                       \
    va_start(list, first);                                     \
    va_copy(again, list);                                      \
    size_t used = 1;                                           \
    while (va_arg(again, char *)) used++;                      \
    char **argv = (char **)alloca((used + 1) * sizeof(char *)); \
    argv[0] = (char *)first;                                   \
    for (size_t at = 1; at <= used; at++) argv[at] = va_arg(list, char *); \
    char *const *env = last;                                   \
    va_end(again);                                             \
    va_end(list)

FACE int execl(const char *path, const char *first, ...) {
    WORDS(environ);
    return execve(path, argv, env);
}
FACE int execlp(const char *path, const char *first, ...) {
    WORDS(environ);
    return execvpe(path, argv, env);
}
FACE int execle(const char *path, const char *first, ...) {
    WORDS(va_arg(list, char *const *));
    return execve(path, argv, env);
}

static int spawn(__typeof__(real_spawn) real, pid_t *pid, const char *file, const char *path,
                 const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const argv[],
                 char *const env[]) {
    if (!table || !file || !argv) return real(pid, file, actions, attributes, argv, env);
    const struct name *name = find_name(table, base_of(file));
    char **room = (char **)ROOM(count(env) + EXTRA), **words = (char **)ROOM(count(argv) + 3);
    if (!room || !words) return real(pid, file, actions, attributes, argv, env);
    // The child's own descriptors are known only there, so the stage looks again.
    if ((name || dry) && path && (concerns(path, argv) || (atomic_load(&table->budget) > 0 && is_program(path))))
        return real_spawn(pid, table->stage, actions, attributes, as_stage(path, argv, words),
                          with_session(env, room, 0));
    return real(pid, file, actions, attributes, argv, name && name->leaf ? env : with_session(env, room, 1));
}

FACE int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const argv[], char *const env[]) {
    return spawn(real_spawn, pid, path, path, actions, attributes, argv, env);
}

FACE int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const argv[], char *const env[]) {
    char path[PATH_MAX];
    const char *found = table && (dry || find_name(table, base_of(file))) ? look_up(file, path, sizeof path, NULL) : NULL;
    return spawn(real_spawnp, pid, file, found, actions, attributes, argv, env);
}
