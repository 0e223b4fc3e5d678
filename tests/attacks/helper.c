/* Loaded by whatever program a tenant's variables reach: it tells the test, by a datagram, with whose rights. */
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

__attribute__((constructor)) static void tell(void) {
    char text[300] = {0}, line[200] = {0};
    FILE *file = fopen("/proc/self/cmdline", "r");
    if (file) {
        fread(line, 1, sizeof line - 1, file);
        fclose(file);
    }
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int made = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(text, sizeof text, "%u %s", geteuid(), line);
    sendto(made, text, sizeof text, 0, (struct sockaddr *)&to, sizeof to);
    close(made);
}
