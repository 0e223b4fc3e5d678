// A client of NFS in user space, for kernels that have none: a mount by FUSE over libnfs, one thread. `nfs URL FOLDER
// [FUSE OPTION]...`. It keeps nothing; what is kept, and for how long, is the kernel's part (entry_timeout, attr_timeout).
#define FUSE_USE_VERSION 26
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <nfsc/libnfs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/time.h>

static struct nfs_context *nfs;

static int told(struct stat *to, int status, const struct nfs_stat_64 *from) {
    if (status) return status;
    memset(to, 0, sizeof *to);
    to->st_ino = from->nfs_ino;
    to->st_mode = (mode_t)from->nfs_mode;
    to->st_nlink = from->nfs_nlink;
    to->st_uid = (uid_t)from->nfs_uid;
    to->st_gid = (gid_t)from->nfs_gid;
    to->st_rdev = from->nfs_rdev;
    to->st_size = (off_t)from->nfs_size;
    to->st_blksize = 65536;
    to->st_blocks = (blkcnt_t)from->nfs_blocks;
    to->st_atim = (struct timespec){(time_t)from->nfs_atime, (long)from->nfs_atime_nsec};
    to->st_mtim = (struct timespec){(time_t)from->nfs_mtime, (long)from->nfs_mtime_nsec};
    to->st_ctim = (struct timespec){(time_t)from->nfs_ctime, (long)from->nfs_ctime_nsec};
    return 0;
}

// As a kernel does: the server may still have had another file of that name in mind.
#define TWICE(call)                                              \
    ({                                                           \
        int status_ = (call);                                    \
        status_ == -ESTALE || status_ == -EIO ? (call) : status_; \
    })

static struct nfsfh *handle(const struct fuse_file_info *info) { return (struct nfsfh *)(uintptr_t)info->fh; }

static int getattr_(const char *path, struct stat *found) {
    struct nfs_stat_64 got;
    return told(found, TWICE(nfs_lstat64(nfs, path, &got)), &got);
}

static int readdir_(const char *path, void *to, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info) {
    struct nfsdir *folder;
    struct nfsdirent *one;
    int status = nfs_opendir(nfs, path, &folder);
    (void)offset, (void)info;
    if (status) return status;
    while ((one = nfs_readdir(nfs, folder))) fill(to, one->name, NULL, 0);
    nfs_closedir(nfs, folder);
    return 0;
}

static int open_(const char *path, struct fuse_file_info *info) {
    struct nfsfh *made;
    int status = TWICE(nfs_open(nfs, path, info->flags & (O_ACCMODE | O_TRUNC), &made));
    info->fh = status ? 0 : (uintptr_t)made;
    return status;
}

static int create_(const char *path, mode_t mode, struct fuse_file_info *info) {
    struct nfsfh *made;
    int status = nfs_open2(nfs, path, O_CREAT | O_EXCL | (info->flags & O_ACCMODE), (int)mode & 07777, &made);
    info->fh = status ? 0 : (uintptr_t)made;
    return status;
}

static int read_(const char *path, char *to, size_t size, off_t at, struct fuse_file_info *info) {
    (void)path;
    return nfs_pread(nfs, handle(info), (uint64_t)at, size, to);
}

static int write_(const char *path, const char *from, size_t size, off_t at, struct fuse_file_info *info) {
    size_t done = 0;
    (void)path;
    while (done < size) {
        int wrote = nfs_pwrite(nfs, handle(info), (uint64_t)at + done, size - done, (void *)(from + done));
        if (wrote < 0) return wrote;
        done += (size_t)wrote;
    }
    return (int)done;
}

static int fsync_(const char *path, int data, struct fuse_file_info *info) {
    (void)path, (void)data;
    return nfs_fsync(nfs, handle(info));
}

static int release_(const char *path, struct fuse_file_info *info) {
    (void)path;
    return nfs_close(nfs, handle(info));
}

static int times_(const char *path, const struct timespec times[2]) {
    struct timeval set[2];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int at = 0; at < 2; at++) {
        const struct timespec *one = times[at].tv_nsec == UTIME_NOW ? &now : &times[at];
        set[at] = (struct timeval){one->tv_sec, one->tv_nsec / 1000};
    }
    return nfs_utimes(nfs, path, set);
}

static int readlink_(const char *path, char *to, size_t size) { return nfs_readlink(nfs, path, to, (int)size); }
static int truncate_(const char *path, off_t size) { return nfs_truncate(nfs, path, (uint64_t)size); }
static int unlink_(const char *path) { return nfs_unlink(nfs, path); }
static int rmdir_(const char *path) { return nfs_rmdir(nfs, path); }
static int mkdir_(const char *path, mode_t mode) { return nfs_mkdir2(nfs, path, (int)mode & 07777); }
static int mknod_(const char *path, mode_t mode, dev_t dev) { return nfs_mknod(nfs, path, (int)mode, (int)dev); }
static int rename_(const char *from, const char *to) { return nfs_rename(nfs, from, to); }
static int symlink_(const char *text, const char *path) { return nfs_symlink(nfs, text, path); }
static int link_(const char *from, const char *to) { return nfs_link(nfs, from, to); }
static int chmod_(const char *path, mode_t mode) { return TWICE(nfs_chmod(nfs, path, (int)mode & 07777)); }
static int chown_(const char *path, uid_t user, gid_t group) { return nfs_chown(nfs, path, (int)user, (int)group); }

static const struct fuse_operations operations = {
    .getattr = getattr_, .readdir = readdir_, .open = open_, .create = create_, .read = read_, .write = write_,
    .fsync = fsync_, .release = release_, .utimens = times_, .readlink = readlink_, .truncate = truncate_,
    .unlink = unlink_, .rmdir = rmdir_, .mkdir = mkdir_, .mknod = mknod_, .rename = rename_, .symlink = symlink_,
    .link = link_, .chmod = chmod_, .chown = chown_,
};

int main(int count, char **argv) {
    struct nfs_url *url;
    if (count < 3 || !(nfs = nfs_init_context()) || !(url = nfs_parse_url_dir(nfs, argv[1]))) return 2;
    nfs_set_dircache(nfs, 0);
    if (nfs_mount(nfs, url->server, url->path)) {
        fprintf(stderr, "%s: %s\n", argv[1], nfs_get_error(nfs));
        return 1;
    }
    argv[1] = argv[0];
    return fuse_main(count - 1, argv + 1, &operations, NULL);
}
