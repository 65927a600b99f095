/* Load on a ZooKeeper server: frames encoded once, one epoll loop, no library.
 *
 *   load PORT run KIND CONNECTIONS OUTSTANDING SECONDS MOST   KIND: get set ephemeral mix
 *        prints: replies, seconds, median µs from sent to read, errors
 *   load PORT fill NUMBER        makes childless znodes below /bench/fill
 *   load PORT watch NUMBER       sets data watches on these, says "ready", waits for EOF on stdin
 *   load PORT idle NUMBER SECONDS    sessions that ping every 10 s; says "ready", then waits so long
 *   load PORT expire NUMBER      ephemerals whose session falls silent; prints the worst ping in ms,
 *                                and ms between the first and the last event of their deletion
 *   load PORT herd NUMBER        watchers of one znode; prints ms from the set to the last event
 *
 * Rule of this file: what is not understood ends the program with a message.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <signal.h>
#include <unistd.h>
#include <poll.h>

enum { CREATE = 1, EXISTS = 3, GET = 4, SET = 5, PING = 11, CLOSE = -11, WINDOW = 256, BUFFER = 65536 };

typedef struct { unsigned char bytes[512]; int size; } Frame;
typedef struct {
    int fd, had, owing;
    unsigned sent, seen;
    double at[WINDOW];
    unsigned char *in;
    Frame get, set, make;
} Conn;

static int port;
static long errors, events;

static void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void put32(Frame *f, int32_t value) {
    uint32_t big = htonl((uint32_t)value);
    memcpy(f->bytes + f->size, &big, 4);
    f->size += 4;
}

static void put64(Frame *f, int64_t value) {
    put32(f, (int32_t)(value >> 32));
    put32(f, (int32_t)value);
}

static void put_text(Frame *f, const char *text, int size) {
    put32(f, size);
    memcpy(f->bytes + f->size, text, size);
    f->size += size;
}

static void begin(Frame *f, int32_t xid, int32_t op) {
    f->size = 4;
    put32(f, xid);
    put32(f, op);
}

static void end(Frame *f) {
    uint32_t big = htonl((uint32_t)f->size - 4);
    memcpy(f->bytes, &big, 4);
}

static void encode_read(Frame *f, int op, const char *path, int watch) {
    begin(f, 1, op);
    put_text(f, path, strlen(path));
    f->bytes[f->size++] = watch;
    end(f);
}

static void encode_set(Frame *f, const char *path, int size) {
    static char data[256];
    memset(data, 'x', sizeof data);
    begin(f, 1, SET);
    put_text(f, path, strlen(path));
    put_text(f, data, size);
    put32(f, -1);
    end(f);
}

static void encode_create(Frame *f, const char *path, int size, int flags) {
    static char data[256];
    begin(f, 1, CREATE);
    put_text(f, path, strlen(path));
    put_text(f, data, size);
    put32(f, 1);
    put32(f, 31);
    put_text(f, "world", 5);
    put_text(f, "anyone", 6);
    put32(f, flags);
    end(f);
}

static void send_all(int fd, const unsigned char *bytes, size_t size) {
    while (size) {
        ssize_t done = send(fd, bytes, size, MSG_NOSIGNAL);
        if (done <= 0) die("send");
        bytes += done;
        size -= done;
    }
}

/* Take what is there (or wait for it); how many replies it completes. Events are counted apart. */
static int take(Conn *c, int wait) {
    ssize_t got = recv(c->fd, c->in + c->had, BUFFER - c->had, wait ? 0 : MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) die("the server closed a connection");
    c->had += got;
    int at = 0, replies = 0;
    while (c->had - at >= 20) {
        uint32_t size;
        int32_t xid, err;
        memcpy(&size, c->in + at, 4);
        size = ntohl(size);
        if (size > BUFFER - 4) die("a reply too long");
        if ((uint32_t)(c->had - at) < size + 4) break;
        memcpy(&xid, c->in + at + 4, 4);
        memcpy(&err, c->in + at + 16, 4);
        if ((int32_t)ntohl(xid) == -1) events++;
        else { replies++; errors += err != 0; }
        at += size + 4;
    }
    memmove(c->in, c->in + at, c->had - at);
    c->had -= at;
    return replies;
}

static void call(Conn *c, const Frame *f) {
    send_all(c->fd, f->bytes, f->size);
    while (!take(c, 1)) ;
}

static void dial(Conn *c, int timeout_ms) {
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    int one = 1;
    memset(c, 0, sizeof *c);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->in = malloc(BUFFER);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0) die("socket");
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) < 0) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Frame f;
    f.size = 4;
    put32(&f, 0);
    put64(&f, 0);
    put32(&f, timeout_ms);
    put64(&f, 0);
    put_text(&f, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    f.bytes[f.size++] = 0;
    end(&f);
    send_all(c->fd, f.bytes, f.size);
    unsigned char answer[41];
    for (size_t had = 0; had < sizeof answer;) {
        ssize_t got = recv(c->fd, answer + had, sizeof answer - had, 0);
        if (got <= 0) die("no session");
        had += got;
    }
}

static void leave(Conn *c) {
    Frame f;
    begin(&f, 1, CLOSE);
    end(&f);
    call(c, &f);
    close(c->fd);
    free(c->in);
}

static void make(Conn *c, const char *path, int size) {
    Frame f;
    encode_create(&f, path, size, 0);
    call(c, &f);
}

static void send_next(Conn *c, const char *kind, int count, double at) {
    static unsigned char out[WINDOW * 512];
    int size = 0;
    for (int i = 0; i < count; i++) {
        int sets = kind[0] == 's' || (kind[0] == 'm' && c->sent % 10 == 9);
        Frame *f = kind[0] == 'e' ? &c->make : sets ? &c->set : &c->get;
        uint32_t xid = htonl(c->sent & 0x3fffffff);
        memcpy(f->bytes + 4, &xid, 4);
        memcpy(out + size, f->bytes, f->size);
        size += f->size;
        c->at[c->sent++ % WINDOW] = at;
    }
    send_all(c->fd, out, size);
    c->owing += count;
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void run(const char *kind, int connections, int outstanding, double seconds, long most) {
    Conn *all = calloc(connections, sizeof *all);
    float *took = malloc(sizeof *took * (most + WINDOW * (long)connections));
    int poller = epoll_create1(0);
    char path[64];
    for (int i = 0; i < connections; i++) {
        dial(&all[i], 30000);
        if (i == 0) { make(all, "/bench", 0); make(all, "/bench/e", 0); }
        sprintf(path, "/bench/k%d", i);
        make(&all[i], path, 100);
        encode_read(&all[i].get, GET, path, 0);
        encode_set(&all[i].set, path, 100);
        call(&all[i], &all[i].set);
        encode_create(&all[i].make, "/bench/e/n-", 100, 3);
        struct epoll_event e = { .events = EPOLLIN, .data.ptr = &all[i] };
        epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &e);
    }
    errors = 0;
    long asked = 0, replies = 0, owing = 0;
    double since = now(), at = since, last = since;
    for (int i = 0; i < connections; i++) {
        send_next(&all[i], kind, outstanding, at);
        asked += outstanding;
        owing += outstanding;
    }
    while (owing) {
        struct epoll_event ready[64];
        int count = epoll_wait(poller, ready, 64, 20000);
        if (count <= 0) die("no reply for 20 s");
        at = now();
        for (int i = 0; i < count; i++) {
            Conn *c = ready[i].data.ptr;
            int got = take(c, 0);
            if (!got) continue;
            for (int k = 0; k < got; k++) took[replies++] = at - c->at[c->seen++ % WINDOW];
            c->owing -= got;
            owing -= got;
            if (at - since < seconds && asked < most) {
                send_next(c, kind, got, at);
                asked += got;
                owing += got;
            }
        }
        last = at;
    }
    qsort(took, replies, sizeof *took, by_size);
    printf("%ld %.6f %.1f %ld\n", replies, last - since, took[replies / 2] * 1e6, errors);
    fflush(stdout);
    for (int i = 0; i < connections; i++) leave(&all[i]);
}

/* One frame for each number, 256 in flight. */
static void for_each(Conn *c, int number, void (*encode)(Frame *, int)) {
    Frame f;
    int sent = 0, seen = 0;
    while (seen < number) {
        while (sent < number && sent - seen < 256) {
            encode(&f, sent++);
            send_all(c->fd, f.bytes, f.size);
        }
        seen += take(c, 1);
    }
}

static void name(char *path, const char *above, int number) { sprintf(path, "/bench/%s/%08d", above, number); }

static void fill_one(Frame *f, int i) {
    char path[64];
    name(path, "fill", i);
    encode_create(f, path, 0, 0);
}

static void watch_one(Frame *f, int i) {
    char path[64];
    name(path, "fill", i);
    encode_read(f, EXISTS, path, 1);
}

static void brief_one(Frame *f, int i) {
    char path[64];
    name(path, "brief", i);
    encode_create(f, path, 0, 1);
}

static void brief_watch(Frame *f, int i) {
    char path[64];
    name(path, "brief", i);
    encode_read(f, EXISTS, path, 1);
}

static void ping(Conn *c) {
    Frame f;
    begin(&f, -2, PING);
    end(&f);
    call(c, &f);
}

static void idle(int number, double seconds) {
    Conn *all = calloc(number, sizeof *all);
    for (int i = 0; i < number; i++) {
        dial(&all[i], 30000);
        free(all[i].in);
    }
    unsigned char *shared = malloc(BUFFER);
    puts("ready");
    fflush(stdout);
    double since = now(), passed;
    int next = 0;
    while ((passed = now() - since) < seconds) {
        int due = (int)(passed / 10.0 * number);
        for (; next < due; next++) {
            Conn *c = &all[next % number];
            c->in = shared;
            ping(c);
        }
        usleep(1000);
    }
}

static void expire(int number) {
    Conn brief, watcher, other;
    dial(&brief, 4000);
    dial(&watcher, 30000);
    dial(&other, 30000);
    make(&other, "/bench", 0);
    make(&other, "/bench/brief", 0);
    for_each(&brief, number, brief_one);
    for_each(&watcher, number, brief_watch);
    close(brief.fd);
    events = 0;
    double first = 0, worst = 0, since = now();
    while (events < number) {
        struct pollfd one = { watcher.fd, POLLIN, 0 };
        double sent = now();
        if (sent - since > 30) die("no expiry for 30 s");
        ping(&other);
        double took = now() - sent;
        if (took > worst) worst = took;
        while (events < number && poll(&one, 1, 1) > 0) {
            take(&watcher, 0);
            if (!first) first = now();
        }
    }
    printf("%.3f %.3f\n", worst * 1e3, (now() - first) * 1e3);
    leave(&watcher);
    leave(&other);
}

static void herd(int number) {
    Conn *all = calloc(number + 1, sizeof *all);
    Frame f;
    int poller = epoll_create1(0);
    encode_read(&f, EXISTS, "/bench/herd", 1);
    dial(&all[number], 30000);
    make(&all[number], "/bench", 0);
    make(&all[number], "/bench/herd", 0);
    for (int i = 0; i < number; i++) {
        dial(&all[i], 30000);
        call(&all[i], &f);
        struct epoll_event e = { .events = EPOLLIN, .data.ptr = &all[i] };
        epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &e);
    }
    events = 0;
    encode_set(&f, "/bench/herd", 10);
    double since = now();
    send_all(all[number].fd, f.bytes, f.size);
    while (events < number) {
        struct epoll_event ready[64];
        int count = epoll_wait(poller, ready, 64, 20000);
        if (count <= 0) die("no event for 20 s");
        for (int i = 0; i < count; i++) take(ready[i].data.ptr, 0);
    }
    printf("%.3f\n", (now() - since) * 1e3);
    fflush(stdout);
    while (!take(&all[number], 1)) ;
    for (int i = 0; i <= number; i++) leave(&all[i]);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    struct rlimit most;
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    port = atoi(argv[1]);
    const char *what = argv[2];
    int number = atoi(argv[3]);
    if (!strcmp(what, "run") && argc == 8) {
        run(argv[3], atoi(argv[4]), atoi(argv[5]), atof(argv[6]), atol(argv[7]));
    } else if (!strcmp(what, "fill") || !strcmp(what, "watch")) {
        Conn c;
        dial(&c, 30000);
        make(&c, "/bench", 0);
        make(&c, "/bench/fill", 0);
        for_each(&c, number, what[0] == 'f' ? fill_one : watch_one);
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF) ;
        leave(&c);
    } else if (!strcmp(what, "idle")) idle(number, atof(argv[4]));
    else if (!strcmp(what, "expire")) expire(number);
    else if (!strcmp(what, "herd")) herd(number);
    else return 2;
    return 0;
}
