// shoal-sh: a shell whose commands may run where their data is. `shoal-sh [--with SHELL] [ARGUMENT]...`; as a script's
// first line, `#!/usr/bin/env shoal-sh`. Without an agent that can be started the shell runs as it would without Shoal.
#include "session.h"

#include <elf.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static void start_agent(const char *python, const char *home) {
    pid_t child = fork();
    if (!child) {
        if (*python) execl(python, python, "-m", "shoal.shell.agent", "--home", home, (char *)NULL);
        execlp("shoal", "shoal", "shell", "agent", "--home", home, (char *)NULL);
        _exit(127);
    }
    int status;
    if (child > 0) waitpid(child, &status, 0);
}

// Whether a program loads libraries that a variable names: not a static one, nor one that gets another user's rights.
static int loads_hook(const char *path) {
    struct stat found;
    Elf64_Ehdr head;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 1;
    int loads = !fstat(fd, &found) && !(found.st_mode & (S_ISUID | S_ISGID));
    if (loads && read(fd, &head, sizeof head) == sizeof head && !memcmp(head.e_ident, ELFMAG, SELFMAG) &&
        head.e_ident[EI_CLASS] == ELFCLASS64) {
        loads = 0;
        for (int at = 0; !loads && at < head.e_phnum; at++) {
            Elf64_Phdr part;
            off_t place = (off_t)head.e_phoff + (off_t)at * head.e_phentsize;
            loads = pread(fd, &part, sizeof part, place) == sizeof part && part.p_type == PT_INTERP;
        }
    }
    close(fd);
    return loads;
}

static void set_before(const char *name, const char *value) {
    char whole[4 * PATH_MAX];
    const char *others = getenv(name);
    snprintf(whole, sizeof whole, "%s%s%s", value, others && *others ? ":" : "", others ? others : "");
    setenv(name, whole, 1);
}

static unsigned long pipe_of(int fd) {
    struct stat found;
    return !fstat(fd, &found) && S_ISFIFO(found.st_mode) ? (unsigned long)found.st_ino : 0;
}

int main(int count, char **argv) {
    const char *shell = "bash", *base = getenv("SHOAL_HOME"), *named = getenv("SHOAL_SHELL_RUN");
    char home[PATH_MAX], folder[PATH_MAX + 8], path[PATH_MAX + 16], file[PATH_MAX], programs[PATH_MAX], run[256];
    if (count > 2 && !strcmp(argv[1], "--with")) {
        shell = argv[2];
        argv += 2;
    }
    if (base && *base) snprintf(home, sizeof home, "%s", base);
    else snprintf(home, sizeof home, "%s/.shoal", getenv("HOME") ? getenv("HOME") : "");
    snprintf(folder, sizeof folder, "%s/shell", home);
    snprintf(path, sizeof path, "%s/table", folder);
    struct table *table = map_table(path);
    int agent = table ? connect_agent(folder) : -1;
    if (agent < 0) {
        start_agent(table ? table->python : "", home);
        table = map_table(path);
        agent = table ? connect_agent(folder) : -1;
    }
    if (agent >= 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        char name[64];
        snprintf(name, sizeof name, "%011llx-%d", (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000,
                 getpid());
        snprintf(run, sizeof run, "%.100s:%lu:%lu:%lu", named && *named ? named : name, pipe_of(0), pipe_of(1), pipe_of(2));
        const char *found = look_up(shell, file, sizeof file, NULL);
        programs_of(table, programs, sizeof programs);
        if (!found || loads_hook(found)) set_before("LD_PRELOAD", table->hook);
        else set_before("PATH", programs);
        setenv(TABLE_VARIABLE, path, 1);
        setenv(RUN_VARIABLE, run, 1);
    } else {
        fprintf(stderr, "shoal-sh: no agent runs, so every command runs here (`shoal shell doctor` says why)\n");
    }
    argv[0] = (char *)shell;
    execvp(shell, argv);
    fprintf(stderr, "shoal-sh: %s: %s\n", shell, strerror(errno));
    return errno == ENOENT ? 127 : 126;
}
