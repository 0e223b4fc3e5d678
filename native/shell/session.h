// What the hook, the stage and the launcher share: the session's table and the question whether a command concerns it.
// Nothing here allocates: the hook runs between vfork and exec.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TABLE_VARIABLE "SHOAL_SHELL_TABLE"
#define RUN_VARIABLE "SHOAL_SHELL_RUN"
#define DRY "plan-"  // how the name of a run begins whose commands only register
#define MAGIC "SHOALSH3"
#define WARM_STAGES 64  // so many stages of pipelines without remote data, until pipelines are left alone again

struct site {
    char prefix[256];
};

struct name {
    char name[31];
    uint8_t leaf;  // it starts no other program
};

struct table {  // written by `shoal.shell.table`
    char magic[8];
    _Atomic int32_t budget;  // stages of pipelines that are still shown to the agent although they name no site
    uint32_t sites, names;
    uint32_t bytes;
    uint32_t patience_ms;  // an agent that is later than this is not waited for; a busy machine stretches it
    char stage[512], hook[512], folder[512], python[512];
    struct site site[];  // then `names` records, sorted
};

static inline const struct name *names_of(const struct table *table) {
    return (const struct name *)(table->site + table->sites);
}

static inline struct table *map_table(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat found;
    if (fd < 0) return NULL;
    void *at = MAP_FAILED;
    if (!fstat(fd, &found) && found.st_uid == geteuid() && found.st_size >= (off_t)sizeof(struct table))
        at = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) return NULL;
    struct table *table = at;
    if (memcmp(table->magic, MAGIC, 8) || table->bytes != found.st_size) {
        munmap(at, (size_t)found.st_size);
        return NULL;
    }
    return table;
}

static inline const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static inline const struct name *find_name(const struct table *table, const char *base) {
    const struct name *names = names_of(table);
    for (uint32_t low = 0, high = table->names; low < high;) {
        uint32_t middle = (low + high) / 2;
        int order = strcmp(base, names[middle].name);
        if (!order) return names + middle;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

static inline int is_under(const char *path, const char *prefix) {
    size_t length = strlen(prefix);
    return !strncmp(path, prefix, length) && (path[length] == '/' || !path[length]);
}

static inline const struct site *site_of(const struct table *table, const char *path) {
    for (uint32_t at = 0; at < table->sites; at++)
        if (is_under(path, table->site[at].prefix)) return table->site + at;
    return NULL;
}

static inline int path_of_fd(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return -1;
    path[length] = 0;
    return 0;
}

enum concern { NOTHING, PIPED, REMOTE };

// Whether a command has to do with a site: its arguments, its directory, its stdin or stdout; else whether it is a stage
// of a pipeline. `outer` has the inodes of the pipes that the session itself was started with.
static inline enum concern concern_of(const struct table *table, char *const argv[], const unsigned long outer[3]) {
    char cwd[PATH_MAX], path[PATH_MAX];
    int known = getcwd(cwd, sizeof cwd) != NULL;
    if (known && site_of(table, cwd)) return REMOTE;
    for (uint32_t at = 0; at < table->sites; at++) {
        const char *prefix = table->site[at].prefix, *below = prefix;
        size_t length = known ? strlen(cwd) : 0;
        if (length && is_under(prefix, length == 1 ? "" : cwd)) below = prefix + (length == 1 ? 1 : length + 1);
        for (int one = 1; argv[0] && argv[one]; one++)
            if (strstr(argv[one], below)) return REMOTE;
    }
    int piped = 0;
    for (int fd = 0; fd < 2; fd++) {
        struct stat found;
        if (fstat(fd, &found)) continue;
        if (S_ISFIFO(found.st_mode) && found.st_ino != outer[fd]) piped = 1;
        if (S_ISREG(found.st_mode) && !path_of_fd(fd, path, sizeof path) && site_of(table, path)) return REMOTE;
    }
    return piped ? PIPED : NOTHING;
}

static inline int is_program(const char *path) {
    struct stat found;
    return !stat(path, &found) && S_ISREG(found.st_mode) && !access(path, X_OK);
}

// Whether the agent is asked about a command. The question that costs a look at the disk comes last: most commands have to
// do with no site.
static inline int asks_agent(struct table *table, const char *path, char *const argv[], const unsigned long outer[3]) {
    switch (concern_of(table, argv, outer)) {
        case REMOTE:
            if (!is_program(path)) return 0;
            atomic_store(&table->budget, WARM_STAGES);
            return 1;
        case PIPED:
            return atomic_load(&table->budget) > 0 && is_program(path) && atomic_fetch_sub(&table->budget, 1) > 0;
        default: return 0;
    }
}

// As execvp looks for it, but not in the folder `other`; what holds a slash is taken as it is. NULL where there is none.
static inline const char *look_up(const char *file, char *path, size_t size, const char *other) {
    if (strchr(file, '/')) return file;
    const char *list = getenv("PATH");
    for (const char *at = list ? list : "/bin:/usr/bin"; at;) {
        const char *end = strchr(at, ':');
        int length = end ? (int)(end - at) : (int)strlen(at);
        int skipped = other && (size_t)length == strlen(other) && !strncmp(at, other, (size_t)length);
        if (!skipped && (size_t)snprintf(path, size, "%.*s%s%s", length, at, length ? "/" : "", file) < size && is_program(path))
            return path;
        at = end ? end + 1 : NULL;
    }
    return NULL;
}

// Where the programs lie that stand first on the PATH of shells that load no hook.
static inline void programs_of(const struct table *table, char *path, size_t size) {
    snprintf(path, size, "%s/bin", table->folder);
}

static inline void read_outer(const char *run, unsigned long outer[3]) {
    outer[0] = outer[1] = outer[2] = 0;
    const char *at = strchr(run, ':');
    if (at) sscanf(at + 1, "%lu:%lu:%lu", &outer[0], &outer[1], &outer[2]);
}

// Connect to the agent; a folder's path may be longer than a socket's. -1 where none listens.
static inline int connect_agent(const char *folder) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/agent.sock", at);
    if (at < 0 || fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) {
        if (fd >= 0) close(fd);
        fd = -1;
    }
    if (at >= 0) close(at);
    return fd;
}
