// A wide-area link between two network namespaces: two TUN devices, and between them a queue with a rate and a delay.
// link NAMESPACE_A NAMESPACE_B DELAY_MS MBIT_PER_S MTU: the ends are 10.88.0.1 and 10.88.0.2.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_QUEUE_S 0.2  // what would wait longer is dropped, as a router does

struct packet {
    struct packet *next;
    double due;
    long size;
    char data[];
};

struct queue {
    struct packet *first, *last;
    double busy_until;
};

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static int open_end(const char *namespace, const char *device, const char *address, int mtu) {
    char text[512];
    snprintf(text, sizeof text, "/var/run/netns/%s", namespace);
    int own = open("/proc/self/ns/net", O_RDONLY), there = open(text, O_RDONLY);
    if (there < 0 || setns(there, CLONE_NEWNET)) {
        perror(namespace);
        exit(1);
    }
    int end = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (end < 0 || ioctl(end, TUNSETIFF, &request)) {
        perror("/dev/net/tun");
        exit(1);
    }
    snprintf(text, sizeof text, "ip link set lo up; ip addr add %s/24 dev %s; ip link set %s mtu %d txqueuelen 5000 up", address,
             device, device, mtu);
    if (system(text) || setns(own, CLONE_NEWNET)) exit(1);
    return end;
}

int main(int count, char **argv) {
    if (count != 6) return 2;
    double delay = atof(argv[3]) / 1e3, bytes_per_s = atof(argv[4]) * 1e6 / 8;
    static char buffer[70000];
    struct queue queues[2] = {{0}};
    prctl(PR_SET_TIMERSLACK, 1000);
    prctl(PR_SET_PDEATHSIG, 9);
    int ends[2] = {open_end(argv[1], "wan0", "10.88.0.1", atoi(argv[5])), open_end(argv[2], "wan1", "10.88.0.2", atoi(argv[5]))};
    puts("ready");
    fflush(stdout);
    for (;;) {
        double at = now(), wait = 1;
        for (int i = 0; i < 2; i++) {
            struct queue *queue = queues + i;
            while (queue->first && queue->first->due <= at) {
                struct packet *packet = queue->first;
                if (write(ends[1 - i], packet->data, (size_t)packet->size) < 0) perror("write");
                queue->first = packet->next;
                free(packet);
            }
            if (queue->first && queue->first->due - at < wait) wait = queue->first->due - at;
        }
        struct pollfd fds[2] = {{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}};
        struct timespec limit = {(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
        ppoll(fds, 2, &limit, NULL);
        for (int i = 0; i < 2; i++)
            for (int burst = 0; burst < 64; burst++) {
                struct queue *queue = queues + i;
                long size = read(ends[i], buffer, sizeof buffer);
                if (size <= 0) break;
                at = now();
                double start = queue->busy_until > at ? queue->busy_until : at;
                if (start - at > LONGEST_QUEUE_S) continue;
                queue->busy_until = start + (double)size / bytes_per_s;
                struct packet *packet = malloc(sizeof *packet + (size_t)size);
                if (!packet) return 1;
                *packet = (struct packet){.due = queue->busy_until + delay, .size = size};
                memcpy(packet->data, buffer, (size_t)size);
                if (queue->first) queue->last->next = packet;
                else queue->first = packet;
                queue->last = packet;
            }
    }
}
