/*
 * Link emulator of a lab: forwards frames between pairs of network interfaces, with delay, jitter, rate and loss.
 *
 * Usage: link_emulator SOCKET. It runs in the network namespace of the interfaces and accepts commands on a Unix socket
 * of type SOCK_SEQPACKET, one command a message:
 *
 *   add NAME LEFT RIGHT SEED                              forward between two interfaces; SEED: 0 to 2^64 - 1
 *   set NAME DELAY_NS JITTER_NS LOSS_PPB BYTES_PER_S      for each direction; 0 bytes per second: no limit
 *   get NAME
 *   remove NAME
 *
 * The response is JSON: settings and counters of the link, null if there is no such link, or {"error": "..."}. A
 * command with one of the last two changes nothing.
 *
 * A frame is due when it has arrived, passed the rate limit, and been delayed. The frames of a direction stay in order;
 * only the kernel can exchange two of them when it moves this process, or the sender, to another processor.
 * They arrive in a ring that the kernel writes, because an ordinary user can't enlarge a socket's buffer, which has
 * room for six frames of 64 KiB only. The virtio header before each frame keeps segmentation and checksum offloads: the
 * interfaces must limit segments to FRAME_MAX bytes (gso_max_size), and larger frames are dropped and counted.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sched/types.h>
#include <linux/virtio_net.h>
#include <malloc.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/*
 * Size of the ring of a direction, which holds frames while this process does not run. Where packets are lost or limited
 * one by one, segments are not kept together, so there are many small frames and as many small slots.
 */
#define RING_BYTES (4 << 20)
#define SEGMENT_SLOT_BYTES 16384
#define PACKET_SLOT_BYTES 2048
#define BLOCK_BYTES 65536
#define VNET_BYTES ((int)sizeof(struct virtio_net_hdr))
/* Limits of the frames of one direction that wait: for their delay, and for the rate limit. */
#define QUEUE_BYTES (64 << 20)
#define RATE_QUEUE_NS 100000000LL
/* Size of the packets that may wait for the rate limit in any case, as with netem's limit in link_emulation.py. */
#define RATE_QUEUE_BYTES 15000ULL
#define SECOND_NS 1000000000LL
#define MAX_DELAY_NS (60 * SECOND_NS)
#define PPB 1000000000ULL
/* An arrival time further from the present was stamped before the wall clock was changed. */
#define MAX_AGE_NS 100000000LL
/* A timer is set earlier by the median delay of earlier ones, which follows each of them by a step, up to a limit. */
#define LEAD_STEP_NS 500LL
#define MAX_LEAD_NS 60000LL
#define SLICE_NS 100000
/* Frames that are read from one direction before the other directions are served. */
#define BATCH 8
#define MESSAGE_BYTES 2048

enum kind { LISTENER, CLIENT, TIMER, DIRECTION };

struct source {
    enum kind kind;
    int fd;
};

struct frame {
    struct frame *next;
    int64_t due_ns;
    uint32_t bytes;
    uint8_t data[]; /* virtio header and frame */
};

struct direction {
    struct source input; /* socket on which its frames arrive */
    int output;
    struct link *link;
    uint8_t *ring;
    unsigned slot, slot_bytes;
    struct frame *head, *tail;
    uint64_t queued_bytes;
    int64_t last_due_ns, free_ns; /* of the last frame; end of its transmission at the limited rate */
    uint64_t random;
    uint64_t frames, bytes, lost, dropped, overflowed, failed;
};

struct link {
    struct link *next;
    char name[32];
    bool removed;
    int64_t delay_ns, jitter_ns;
    uint64_t loss_ppb, bytes_per_s;
    struct direction directions[2];
};

static struct link *links;
static int poller;
static int64_t real_minus_monotonic_ns;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static void die(const char *context)
{
    fprintf(stderr, "%s: %s\n", context, strerror(errno));
    exit(1);
}

static void watch(struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, source->fd, &event))
        die("epoll_ctl");
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t mixed = (*state += 0x9e3779b97f4a7c15ULL);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    return mixed ^ (mixed >> 31);
}

/* -- frames ------------------------------------------------------------------------------------------------------- */

static void transmit(struct direction *way, const uint8_t *data, uint32_t bytes)
{
    if (send(way->output, data, bytes, MSG_DONTWAIT) < 0) {
        way->failed++;
        return;
    }
    way->frames++;
    way->bytes += bytes - VNET_BYTES;
}

static void enqueue(struct direction *way, int64_t due_ns, const uint8_t *data, uint32_t bytes)
{
    struct frame *frame = way->queued_bytes + bytes > QUEUE_BYTES ? NULL : malloc(sizeof *frame + bytes);
    if (!frame) {
        way->dropped++;
        return;
    }
    frame->next = NULL;
    frame->due_ns = due_ns;
    frame->bytes = bytes;
    memcpy(frame->data, data, bytes);
    *(way->head ? &way->tail->next : &way->head) = frame;
    way->tail = frame;
    way->queued_bytes += bytes;
}

static struct frame *dequeue(struct direction *way)
{
    struct frame *frame = way->head;
    way->head = frame->next;
    way->queued_bytes -= frame->bytes;
    return frame;
}

static int64_t arrival_ns(const struct tpacket2_hdr *header, int64_t now_ns)
{
    int64_t found = header->tp_sec * SECOND_NS + header->tp_nsec - real_minus_monotonic_ns;
    return found > now_ns || now_ns - found > MAX_AGE_NS ? now_ns : found;
}

static void forward(struct direction *way, const struct tpacket2_hdr *header, int64_t now_ns)
{
    const struct link *link = way->link;
    const uint8_t *data = (const uint8_t *)header + header->tp_mac - VNET_BYTES;
    uint32_t bytes = header->tp_snaplen + VNET_BYTES;
    if (header->tp_snaplen < header->tp_len) {
        way->dropped++;
        return;
    }
    if (link->loss_ppb && ((draw(&way->random) >> 32) * PPB) >> 32 < link->loss_ppb) {
        way->lost++;
        return;
    }
    int64_t due_ns = arrival_ns(header, now_ns);
    if (link->bytes_per_s) {
        int64_t least_ns = (int64_t)(RATE_QUEUE_BYTES * SECOND_NS / link->bytes_per_s);
        if (way->free_ns - due_ns > RATE_QUEUE_NS + least_ns) {
            way->dropped++;
            return;
        }
        if (way->free_ns < due_ns)
            way->free_ns = due_ns;
        way->free_ns += header->tp_len * (uint64_t)SECOND_NS / link->bytes_per_s;
        due_ns = way->free_ns;
    }
    due_ns += link->delay_ns;
    if (link->jitter_ns)
        due_ns += (int64_t)(draw(&way->random) % (2 * (uint64_t)link->jitter_ns + 1)) - link->jitter_ns;
    if (due_ns < way->last_due_ns)
        due_ns = way->last_due_ns;
    way->last_due_ns = due_ns;
    if (!way->head && due_ns <= now_ns)
        transmit(way, data, bytes);
    else
        enqueue(way, due_ns, data, bytes);
}

/* Forward some of the frames that have arrived; return whether more may wait. */
static bool receive(struct direction *way)
{
    int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    real_minus_monotonic_ns = clock_ns(CLOCK_REALTIME) - now_ns;
    for (int count = 0; count < BATCH; count++) {
        struct tpacket2_hdr *header = (struct tpacket2_hdr *)(way->ring + (size_t)way->slot * way->slot_bytes);
        if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            return false;
        forward(way, header, now_ns);
        __atomic_store_n(&header->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        way->slot = (way->slot + 1) % (RING_BYTES / way->slot_bytes);
    }
    return true;
}

/* Return the direction whose next frame is due first, or NULL if no frame waits. */
static struct direction *earliest(void)
{
    struct direction *found = NULL;
    for (struct link *link = links; link; link = link->next)
        for (int side = 0; side < 2; side++) {
            struct direction *way = &link->directions[side];
            if (way->head && (!found || way->head->due_ns < found->head->due_ns))
                found = way;
        }
    return found;
}

/* Transmit all frames that are due; return when the next one is, or -1 if no frame waits. */
static int64_t transmit_due(void)
{
    struct direction *way;
    while ((way = earliest())) {
        if (way->head->due_ns > clock_ns(CLOCK_MONOTONIC))
            return way->head->due_ns;
        struct frame *frame = dequeue(way);
        transmit(way, frame->data, frame->bytes);
        free(frame);
    }
    return -1;
}

/* -- links -------------------------------------------------------------------------------------------------------- */

static int set_option(int fd, int option, int value)
{
    return setsockopt(fd, SOL_PACKET, option, &value, sizeof value);
}

/* Return a new ring of arriving frames of a socket that has none, or MAP_FAILED with errno set. */
static uint8_t *map_ring(int fd, unsigned slot_bytes)
{
    struct tpacket_req request = {
        .tp_block_size = BLOCK_BYTES,
        .tp_block_nr = RING_BYTES / BLOCK_BYTES,
        .tp_frame_size = slot_bytes,
        .tp_frame_nr = RING_BYTES / slot_bytes,
    };
    if (setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request))
        return MAP_FAILED;
    return mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

/* Change the size of the slots; frames that arrive in the moment without a ring are lost. */
static void resize_slots(struct direction *way, unsigned slot_bytes)
{
    const struct tpacket_req none = {0};
    if (way->slot_bytes == slot_bytes)
        return;
    for (unsigned read = 0; read < RING_BYTES / way->slot_bytes && receive(way); read += BATCH)
        ;
    munmap(way->ring, RING_BYTES);
    if (setsockopt(way->input.fd, SOL_PACKET, PACKET_RX_RING, &none, sizeof none))
        die("release of a ring");
    way->ring = map_ring(way->input.fd, slot_bytes);
    if (way->ring == MAP_FAILED)
        die("ring");
    way->slot = 0;
    way->slot_bytes = slot_bytes;
}

/* Return a packet socket on an interface with its ring of arriving frames, or -1 with errno set. */
static int open_interface(const char *name, uint8_t **ring)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    address.sll_ifindex = (int)if_nametoindex(name);
    if (!address.sll_ifindex)
        return -1;
    /* without a protocol no frame arrives before the socket is bound */
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    *ring = MAP_FAILED;
    if (!set_option(fd, PACKET_VERSION, TPACKET_V2) && !set_option(fd, PACKET_VNET_HDR, 1) &&
        !set_option(fd, PACKET_IGNORE_OUTGOING, 1) && !set_option(fd, PACKET_QDISC_BYPASS, 1))
        *ring = map_ring(fd, SEGMENT_SLOT_BYTES);
    if (*ring != MAP_FAILED) {
        if (!bind(fd, (struct sockaddr *)&address, sizeof address))
            return fd;
        int reason = errno;
        munmap(*ring, RING_BYTES);
        errno = reason;
    }
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

static void close_interface(struct direction *way)
{
    munmap(way->ring, RING_BYTES);
    close(way->input.fd);
    while (way->head)
        free(dequeue(way));
}

static struct link *find(const char *name)
{
    for (struct link *link = links; link; link = link->next)
        if (!link->removed && !strcmp(link->name, name))
            return link;
    return NULL;
}

/* Return NULL, or the interface that can't be used, with errno set. */
static const char *add(const char *name, const char *const interfaces[2], uint64_t seed)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return interfaces[0];
    snprintf(link->name, sizeof link->name, "%s", name);
    for (int side = 0; side < 2; side++) {
        struct direction *way = &link->directions[side];
        way->link = link;
        way->slot_bytes = SEGMENT_SLOT_BYTES;
        way->input.kind = DIRECTION;
        way->random = seed;
        /* one after the other, so that the directions lose different frames */
        seed = draw(&seed);
        way->input.fd = open_interface(interfaces[side], &way->ring);
        if (way->input.fd < 0) {
            int reason = errno;
            if (side)
                close_interface(&link->directions[0]);
            free(link);
            errno = reason;
            return interfaces[side];
        }
    }
    for (int side = 0; side < 2; side++) {
        link->directions[side].output = link->directions[!side].input.fd;
        watch(&link->directions[side].input, EPOLLIN);
    }
    link->next = links;
    links = link;
    return NULL;
}

static void configure(struct link *link, int64_t delay_ns, int64_t jitter_ns, uint64_t loss_ppb, uint64_t bytes_per_s)
{
    link->delay_ns = delay_ns;
    link->jitter_ns = jitter_ns;
    link->loss_ppb = loss_ppb;
    link->bytes_per_s = bytes_per_s;
    /* waiting frames must not hold up later ones for longer than the new delay */
    int64_t latest_ns = clock_ns(CLOCK_MONOTONIC) + delay_ns;
    for (int side = 0; side < 2; side++) {
        struct direction *way = &link->directions[side];
        resize_slots(way, loss_ppb || bytes_per_s ? PACKET_SLOT_BYTES : SEGMENT_SLOT_BYTES);
        way->free_ns = 0;
        if (way->last_due_ns > latest_ns)
            way->last_due_ns = latest_ns;
        for (struct frame *frame = way->head; frame; frame = frame->next)
            if (frame->due_ns > latest_ns)
                frame->due_ns = latest_ns;
    }
}

/* Free removed links, which pending events may refer to before. */
static void free_removed(void)
{
    for (struct link **at = &links; *at;) {
        struct link *link = *at;
        if (!link->removed) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        for (int side = 0; side < 2; side++)
            close_interface(&link->directions[side]);
        free(link);
    }
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

static int describe(struct link *link, char *text)
{
    if (!link)
        return snprintf(text, MESSAGE_BYTES, "null");
    int length = snprintf(text, MESSAGE_BYTES,
                          "{\"delay_ns\": %" PRId64 ", \"jitter_ns\": %" PRId64 ", \"loss_ppb\": %" PRIu64
                          ", \"bytes_per_s\": %" PRIu64 ", \"directions\": [",
                          link->delay_ns, link->jitter_ns, link->loss_ppb, link->bytes_per_s);
    for (int side = 0; side < 2; side++) {
        struct direction *way = &link->directions[side];
        struct tpacket_stats read = {0};
        socklen_t size = sizeof read;
        /* the kernel starts again from 0 whenever this is read */
        if (!getsockopt(way->input.fd, SOL_PACKET, PACKET_STATISTICS, &read, &size))
            way->overflowed += read.tp_drops;
        length += snprintf(text + length, (size_t)(MESSAGE_BYTES - length),
                           "%s{\"frames\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"lost\": %" PRIu64
                           ", \"dropped\": %" PRIu64 ", \"overflowed\": %" PRIu64 ", \"failed\": %" PRIu64
                           ", \"queued_bytes\": %" PRIu64 "}",
                           side ? ", " : "", way->frames, way->bytes, way->lost, way->dropped, way->overflowed,
                           way->failed, way->queued_bytes);
    }
    return length + snprintf(text + length, (size_t)(MESSAGE_BYTES - length), "]}");
}

__attribute__((format(printf, 2, 3))) static int reject(char *text, const char *format, ...)
{
    char reason[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return snprintf(text, MESSAGE_BYTES, "{\"error\": \"%s\"}", reason);
}

/* Return whether an argument is a whole number up to a limit, in decimal digits only. */
static bool parse(const char *argument, uint64_t limit, uint64_t *number)
{
    if (!*argument || strlen(argument) > 20 || argument[strspn(argument, "0123456789")])
        return false;
    errno = 0;
    *number = strtoull(argument, NULL, 10);
    return !errno && *number <= limit;
}

/* Run a command and write the response; return its length. */
static int run(char *command, char *response)
{
    /* responses quote arguments, which must not need an escape in JSON */
    for (const char *at = command; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
            return reject(response, "a command has printable ASCII without quotes and backslashes");
    char *arguments[8];
    int count = 0;
    for (char *argument = strtok(command, " "); argument; argument = strtok(NULL, " ")) {
        if (count == 8)
            return reject(response, "too many arguments");
        arguments[count++] = argument;
    }
    if (count < 2)
        return reject(response, "expected a command and the name of a link");
    const char *name = arguments[1];
    struct link *link = find(name);
    uint64_t numbers[4];
    if (!strcmp(arguments[0], "add") && count == 5) {
        const char *const interfaces[2] = {arguments[2], arguments[3]};
        if (link)
            return reject(response, "link %.40s: exists already", name);
        if (strlen(name) >= sizeof link->name)
            return reject(response, "link %.40s: its name is too long", name);
        if (!parse(arguments[4], UINT64_MAX, &numbers[0]))
            return reject(response, "link %s: %.40s is not a seed", name, arguments[4]);
        const char *wrong = add(name, interfaces, numbers[0]);
        return wrong ? reject(response, "link %s: interface %.40s: %s", name, wrong, strerror(errno))
                     : describe(find(name), response);
    }
    if (!strcmp(arguments[0], "get") && count == 2)
        return describe(link, response);
    if (!strcmp(arguments[0], "remove") && count == 2) {
        int length = describe(link, response);
        if (link)
            link->removed = true;
        return length;
    }
    if (!strcmp(arguments[0], "set") && count == 6) {
        const uint64_t limits[4] = {MAX_DELAY_NS, MAX_DELAY_NS, PPB, UINT64_MAX / 2};
        for (int index = 0; index < 4; index++)
            if (!parse(arguments[2 + index], limits[index], &numbers[index]))
                return reject(response, "link %s: %.40s is not a whole number up to %" PRIu64, name,
                              arguments[2 + index], limits[index]);
        if (numbers[1] > numbers[0])
            return reject(response, "link %s: jitter above the delay", name);
        if (link)
            configure(link, (int64_t)numbers[0], (int64_t)numbers[1], numbers[2], numbers[3]);
        return describe(link, response);
    }
    return reject(response, "not a command: %.20s (number of arguments: %d)", arguments[0], count - 1);
}

static void serve(struct source *client)
{
    char command[MESSAGE_BYTES + 1], response[MESSAGE_BYTES];
    /* the whole length, even if the message does not fit */
    ssize_t length = recv(client->fd, command, MESSAGE_BYTES, MSG_DONTWAIT | MSG_TRUNC);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length > 0) {
        int bytes;
        if (length > MESSAGE_BYTES) {
            bytes = reject(response, "a command has at most %d bytes", MESSAGE_BYTES);
        } else {
            command[length] = '\0';
            bytes = run(command, response);
        }
        if (send(client->fd, response, (size_t)bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            return;
    }
    close(client->fd);
    free(client);
}

static void accept_client(int listener)
{
    static int spare = -1;
    if (spare < 0)
        spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct source *client = malloc(sizeof *client);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && spare >= 0) {
        /* a client that stays pending would be reported again at once: reject it with the spare descriptor */
        close(spare);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            close(fd);
        fprintf(stderr, "a client was rejected: %s\n", strerror(EMFILE));
        spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
        fd = -1;
    }
    if (!client || fd < 0) {
        if (fd >= 0)
            close(fd);
        free(client);
        return;
    }
    *client = (struct source){CLIENT, fd};
    watch(client, EPOLLIN);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        die(path);
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* programs of other users in the lab must not change links */
    umask(077);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, SOMAXCONN))
        die(path);
    return fd;
}

/* -- main loop ---------------------------------------------------------------------------------------------------- */

static void handle(const struct epoll_event *event)
{
    struct source *source = event->data.ptr;
    int reason;
    socklen_t size = sizeof reason;
    switch (source->kind) {
    case LISTENER:
        accept_client(source->fd);
        break;
    case CLIENT:
        serve(source);
        break;
    case TIMER:
        break;
    case DIRECTION:
        /* an interface that goes down leaves an error, which would be reported until it is read */
        if (event->events & EPOLLERR)
            getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &reason, &size);
        receive((struct direction *)source);
        break;
    }
}

/* Request short time slices: Linux 6.12 and later then run this process sooner after a sleep. */
static void shorten_slice(void)
{
    struct sched_attr attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0))
        return;
    attributes.sched_runtime = SLICE_NS;
    /* a kernel that does not allow it schedules this process like any other */
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: link_emulator SOCKET\n");
        return 2;
    }
    /* frames come and go all the time, so freed memory is kept */
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
    shorten_slice();
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct source timer = {TIMER, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
    struct source listener = {LISTENER, listen_at(argv[1])};
    if (poller < 0 || timer.fd < 0)
        die("timer");
    watch(&listener, EPOLLIN);
    /* by edges, so that it need not be read; setting it anew clears it */
    watch(&timer, EPOLLIN | EPOLLET);
    if (write(STDOUT_FILENO, "ready\n", 6) != 6)
        die("standard output");
    close(STDOUT_FILENO);

    int64_t wake_ns = -1, lead_ns = 0;
    for (;;) {
        struct epoll_event events[16];
        int64_t next_ns = transmit_due();
        bool near = next_ns >= 0 && next_ns - clock_ns(CLOCK_MONOTONIC) <= lead_ns;
        if (next_ns >= 0 && !near && next_ns - lead_ns != wake_ns) {
            wake_ns = next_ns - lead_ns;
            struct itimerspec due = {.it_value = {wake_ns / SECOND_NS, wake_ns % SECOND_NS}};
            if (timerfd_settime(timer.fd, TFD_TIMER_ABSTIME, &due, NULL))
                die("timerfd_settime");
        }
        /* with a frame so near, poll */
        int count = epoll_wait(poller, events, 16, near ? 0 : -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int index = 0; index < count; index++) {
            if (events[index].data.ptr == &timer) {
                int64_t late_ns = clock_ns(CLOCK_MONOTONIC) - wake_ns;
                if (late_ns > lead_ns && lead_ns < MAX_LEAD_NS)
                    lead_ns += LEAD_STEP_NS;
                else if (late_ns < lead_ns)
                    lead_ns -= LEAD_STEP_NS;
                continue;
            }
            handle(&events[index]);
            transmit_due();
        }
        free_removed();
    }
}
