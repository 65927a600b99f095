/* The C client's synchronous calls: every return code, Stat and event of one session.

   session HOST:PORT        prints a line for each call

   Written for this project; it links libzookeeper_mt. Session ids, zxids and times are written
   by what they mean, so that two servers which do the same print the same. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_connected, is_expired, is_auth_failed;
static int events;
static char event_lines[200][200];
static const char *names[] = {"?", "created", "deleted", "changed", "child"};

static void watcher(zhandle_t *zh, int type, int state, const char *path, void *context) {
    (void)zh;
    pthread_mutex_lock(&lock);
    if (type == ZOO_SESSION_EVENT) {
        is_connected = state == ZOO_CONNECTED_STATE;
        is_expired |= state == ZOO_EXPIRED_SESSION_STATE;
        is_auth_failed |= state == ZOO_AUTH_FAILED_STATE;
    } else if (events < 200) {
        snprintf(event_lines[events++], 200, "%s %s %s", context ? (char *)context : "default",
                 type >= 1 && type <= 4 ? names[type] : "other", path);
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for(int *what, int at_least) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 15;
    pthread_mutex_lock(&lock);
    while (*what < at_least)
        if (pthread_cond_timedwait(&changed, &lock, &deadline)) {
            printf("waited in vain\n");
            exit(1);
        }
    pthread_mutex_unlock(&lock);
}

static void show_events(int expected) {
    wait_for(&events, expected);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < events; i++) printf("  event: %s\n", event_lines[i]);
    events = 0;
    pthread_mutex_unlock(&lock);
}

static zhandle_t *connected(const char *hosts, const clientid_t *id) {
    is_connected = is_expired = 0;
    zhandle_t *zh = zookeeper_init(hosts, watcher, 10000, id, NULL, 0);
    wait_for(&is_connected, 1);
    return zh;
}

static void show(const char *what, int rc) { printf("%s: %d %s\n", what, rc, zerror(rc)); }

static void show_stat(zhandle_t *zh, const char *what, int rc, const struct Stat *s) {
    printf("%s: %d", what, rc);
    if (rc == ZOK)
        printf(" v%d cv%d av%d len%d n%d %s%s%s%s", s->version, s->cversion, s->aversion,
               s->dataLength, s->numChildren,
               s->ephemeralOwner == 0 ? "nobody's"
               : s->ephemeralOwner == zoo_client_id(zh)->client_id ? "mine"
                                                                   : "other's",
               s->mzxid == s->czxid ? "" : " set", s->pzxid == s->czxid ? "" : " grown",
               s->ctime > 1000000000000 && s->mtime >= s->ctime ? "" : " no time");
    printf("\n");
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void show_names(const char *what, int rc, struct String_vector *names) {
    printf("%s: %d", what, rc);
    if (rc == ZOK) {
        qsort(names->data, names->count, sizeof(char *), by_name);
        for (int i = 0; i < names->count; i++) printf(" %s", names->data[i]);
        deallocate_String_vector(names);
    }
    printf("\n");
}

static void show_get(zhandle_t *zh, const char *path) {
    char data[100];
    int size = sizeof data;
    struct Stat stat;
    int rc = zoo_get(zh, path, 0, data, &size, &stat);
    show_stat(zh, path, rc, &stat);
    if (rc == ZOK) printf("  data: %d %.*s\n", size, size > 0 ? size : 0, data);
}

static void create(zhandle_t *zh, const char *path, const char *data, int flags) {
    char made[100] = "";
    int rc = zoo_create(zh, path, data, data ? (int)strlen(data) : -1, &ZOO_OPEN_ACL_UNSAFE,
                        flags, made, sizeof made);
    printf("create %s %d: %d %s\n", path, flags, rc, rc == ZOK ? made : "");
}

static void creates(zhandle_t *zh) {
    struct Stat stat;
    char made[100] = "";
    create(zh, "/c", "root", 0);
    create(zh, "/c", "root", 0);
    create(zh, "/c/null", NULL, 0);
    create(zh, "/c/empty", "", 0);
    create(zh, "/c/e", "x", ZOO_EPHEMERAL);
    create(zh, "/c/e/child", "x", 0);
    create(zh, "/c/s-", "x", ZOO_PERSISTENT_SEQUENTIAL);
    create(zh, "/c/s-", "x", ZOO_EPHEMERAL_SEQUENTIAL);
    create(zh, "/c/", "x", ZOO_PERSISTENT_SEQUENTIAL);
    create(zh, "/c/box", "x", ZOO_CONTAINER);
    create(zh, "/c/none/x", "x", 0);
    create(zh, "/c/../x", "x", 0);
    create(zh, "/c/\xe2\x82\xac", "x", 0);
    create(zh, "/c/bad", "x", 99);
    int rc = zoo_create2(zh, "/c/two", "12", 2, &ZOO_OPEN_ACL_UNSAFE, 0, made, sizeof made, &stat);
    show_stat(zh, "create2", rc, &stat);
    rc = zoo_create_ttl(zh, "/c/ttl", "12", 2, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_WITH_TTL, 1000,
                        made, sizeof made);
    show("create_ttl", rc);
    struct ACL_vector none = {0, NULL};
    show("create without acl", zoo_create(zh, "/c/noacl", "x", 1, &none, 0, made, sizeof made));
    show_get(zh, "/c");
    show_get(zh, "/c/null");
    show_get(zh, "/c/empty");
    show_get(zh, "/c/e");
    show_get(zh, "/c/box");
    show_get(zh, "/c/none");
    show_get(zh, "bad");
}

static void changes(zhandle_t *zh) {
    struct Stat stat;
    struct String_vector names;
    int rc = zoo_set2(zh, "/c", "new", 3, -1, &stat);
    show_stat(zh, "set2", rc, &stat);
    show("set, old version", zoo_set(zh, "/c", "newer", 5, 0));
    show("set, right version", zoo_set(zh, "/c", "newer", 5, 1));
    show("set of none", zoo_set(zh, "/none", "x", 1, -1));
    show("set to null", zoo_set(zh, "/c/two", NULL, -1, -1));
    show_get(zh, "/c/two");
    rc = zoo_exists(zh, "/c", 0, &stat);
    show_stat(zh, "exists", rc, &stat);
    show("exists of none", zoo_exists(zh, "/none", 0, &stat));
    rc = zoo_get_children(zh, "/c", 0, &names);
    show_names("children", rc, &names);
    rc = zoo_get_children2(zh, "/c", 0, &names, &stat);
    show_names("children2", rc, &names);
    show_stat(zh, "children2", rc, &stat);
    rc = zoo_get_children(zh, "/none", 0, &names);
    show_names("children of none", rc, &names);
    show("delete, not empty", zoo_delete(zh, "/c", -1));
    show("delete, old version", zoo_delete(zh, "/c/two", 7));
    show("delete", zoo_delete(zh, "/c/two", -1));
    show("delete of none", zoo_delete(zh, "/c/two", -1));
    show("delete of all", zoo_delete(zh, "/", -1));
}

static void acls(zhandle_t *zh) {
    struct ACL_vector acl;
    struct Stat stat;
    int rc = zoo_get_acl(zh, "/c", &acl, &stat);
    printf("get_acl: %d", rc);
    if (rc == ZOK) {
        for (int i = 0; i < acl.count; i++)
            printf(" %s:%s:%d", acl.data[i].id.scheme, acl.data[i].id.id, acl.data[i].perms);
        deallocate_ACL_vector(&acl);
    }
    printf("\n");
    create(zh, "/acl", "x", 0);
    show("set_acl, creator without auth", zoo_set_acl(zh, "/acl", -1, &ZOO_CREATOR_ALL_ACL));
    show("set_acl, read", zoo_set_acl(zh, "/acl", -1, &ZOO_READ_ACL_UNSAFE));
    show("set_acl, again", zoo_set_acl(zh, "/acl", -1, &ZOO_OPEN_ACL_UNSAFE));
    show("set", zoo_set(zh, "/acl", "y", 1, -1));
    create(zh, "/acl/child", "x", 0);
    show("set_acl of none", zoo_set_acl(zh, "/none", -1, &ZOO_OPEN_ACL_UNSAFE));
    rc = zoo_get_acl(zh, "/acl", &acl, &stat);
    show_stat(zh, "stat of get_acl", rc, &stat);
    if (rc == ZOK) deallocate_ACL_vector(&acl);
    show("delete", zoo_delete(zh, "/acl", -1));
}

static int done;
static void completed(int rc, const void *what) {
    printf("%s: %d %s\n", (const char *)what, rc, zerror(rc));
    pthread_mutex_lock(&lock);
    done = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void authentication(const char *hosts) {
    char made[100];
    zhandle_t *mine = connected(hosts, NULL), *other = connected(hosts, NULL);
    done = 0;
    int asked = zoo_add_auth(mine, "digest", "me:secret", 9, completed, "authenticated");
    wait_for(&done, 1); // only then is it our turn to print: the answer comes in another thread
    show("add_auth", asked);
    show("create for me alone",
         zoo_create(mine, "/mine", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, made, sizeof made));
    char data[10];
    int size = sizeof data;
    show("get as me", zoo_get(mine, "/mine", 0, data, &size, NULL));
    show("get as other", zoo_get(other, "/mine", 0, data, &size, NULL));
    show("set as other", zoo_set(other, "/mine", "y", 1, -1));
    show("create below as other", zoo_create(other, "/mine/x", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0,
                                             made, sizeof made));
    struct ACL_vector acl;
    struct Stat stat;
    int rc = zoo_get_acl(mine, "/mine", &acl, &stat);
    if (rc == ZOK) {
        printf("acl: %s %s %d\n", acl.data[0].id.scheme, acl.data[0].id.id, acl.data[0].perms);
        deallocate_ACL_vector(&acl);
    }
    show("set_acl as other", zoo_set_acl(other, "/mine", -1, &ZOO_OPEN_ACL_UNSAFE));
    show("delete as me", zoo_delete(mine, "/mine", -1));
    done = 0;
    asked = zoo_add_auth(other, "none", "x", 1, completed, "refused");
    wait_for(&done, 1);
    wait_for(&is_auth_failed, 1);
    show("add_auth of no scheme", asked);
    zookeeper_close(mine);
    zookeeper_close(other);
}

static void multi(zhandle_t *zh, const char *what, int count, zoo_op_t *ops) {
    zoo_op_result_t results[10];
    memset(results, 0, sizeof results);
    int rc = zoo_multi(zh, count, ops, results);
    printf("multi %s: %d", what, rc);
    for (int i = 0; i < count; i++) {
        printf(" %d", results[i].err);
        if (rc == ZOK && results[i].value) printf("=%s", results[i].value);
        if (rc == ZOK && results[i].stat) printf("=v%d", results[i].stat->version);
    }
    printf("\n");
}

static void multis(zhandle_t *zh) {
    char a[100], b[100], c[100];
    struct Stat stat, other;
    zoo_op_t ops[10];
    zoo_create_op_init(&ops[0], "/m", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, a, sizeof a);
    zoo_create_op_init(&ops[1], "/m/s-", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, b, sizeof b);
    zoo_create_op_init(&ops[2], "/m/s-", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 3, c, sizeof c);
    zoo_set_op_init(&ops[3], "/m", "y", 1, 0, &stat);
    zoo_check_op_init(&ops[4], "/m", 1);
    multi(zh, "good", 5, ops);
    zoo_set_op_init(&ops[0], "/m", "z", 1, -1, &stat);
    zoo_delete_op_init(&ops[1], "/m/none", -1);
    zoo_set_op_init(&ops[2], "/m", "z", 1, -1, &other);
    multi(zh, "with one that fails", 3, ops);
    show_get(zh, "/m");
    zoo_check_op_init(&ops[0], "/m", 9);
    multi(zh, "with a wrong version", 1, ops);
    zoo_delete_op_init(&ops[0], "/m", -1);
    zoo_create_op_init(&ops[1], "/m", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, a, sizeof a);
    multi(zh, "with children in the way", 2, ops);
    multi(zh, "of nothing", 0, ops);
    zoo_delete_op_init(&ops[0], b, -1);
    zoo_delete_op_init(&ops[1], c, -1);
    zoo_delete_op_init(&ops[2], "/m", -1);
    multi(zh, "that takes all down", 3, ops);
}

static void watches(zhandle_t *zh) {
    struct Stat stat;
    struct String_vector found;
    char data[100];
    int size = sizeof data;
    create(zh, "/w", "x", 0);
    zoo_wget(zh, "/w", watcher, "data", data, &size, NULL);
    zoo_wget_children(zh, "/w", watcher, "children", &found);
    deallocate_String_vector(&found);
    zoo_wexists(zh, "/w/x", watcher, "exists", &stat);
    create(zh, "/w/x", "x", 0);
    zoo_set(zh, "/w", "y", 1, -1);
    show_events(3);
    zoo_wexists(zh, "/w/x", watcher, "exists", &stat);
    zoo_wget(zh, "/w/x", watcher, "data", data, &size, NULL);
    zoo_wget_children(zh, "/w/x", watcher, "children", &found);
    deallocate_String_vector(&found);
    zoo_delete(zh, "/w/x", -1);
    show_events(3);
    zoo_wget(zh, "/w", watcher, "data", data, &size, NULL);
    show("remove_watches",
         zoo_remove_watches(zh, "/w", ZWATCHTYPE_DATA, watcher, (void *)"data", 0));
    show("remove_watches, none",
         zoo_remove_watches(zh, "/w", ZWATCHTYPE_CHILD, watcher, (void *)"data", 0));
    zoo_delete(zh, "/w", -1);
}

static void sessions(const char *hosts) {
    zhandle_t *owner = connected(hosts, NULL);
    clientid_t id = *zoo_client_id(owner);
    printf("granted %d ms\n", zoo_recv_timeout(owner));
    zhandle_t *heir = connected(hosts, &id);
    printf("the session moved: %d\n", zoo_client_id(heir)->client_id == id.client_id);
    zookeeper_close(heir); /* both want it, so that each call may find it moved back */
    zookeeper_close(owner);
    zhandle_t *other = connected(hosts, NULL);
    create(other, "/session", "x", ZOO_EPHEMERAL);
    clientid_t wrong = *zoo_client_id(other);
    wrong.client_id ^= 1;
    is_expired = 0;
    zhandle_t *thief = zookeeper_init(hosts, watcher, 10000, &wrong, NULL, 0);
    wait_for(&is_expired, 1);
    printf("an unknown session is expired: %d\n", zoo_state(thief) == ZOO_EXPIRED_SESSION_STATE);
    show("create in an expired session", zoo_delete(thief, "/session", -1));
    zookeeper_close(thief);
    zookeeper_close(other);
    other = connected(hosts, NULL);
    show("an ephemeral of a closed session", zoo_exists(other, "/session", 0, NULL));
    zookeeper_close(other);
}

int main(int count, char **words) {
    if (count != 2) return 2;
    zoo_set_debug_level(0);
    zoo_deterministic_conn_order(1);
    zhandle_t *zh = connected(words[1], NULL);
    creates(zh);
    changes(zh);
    acls(zh);
    multis(zh);
    watches(zh);
    struct String_vector found;
    if (zoo_get_children(zh, "/c", 0, &found) == ZOK) {
        qsort(found.data, found.count, sizeof(char *), by_name);
        for (int i = 0; i < found.count; i++) {
            char path[200];
            snprintf(path, sizeof path, "/c/%s", found.data[i]);
            show(path, zoo_delete(zh, path, -1));
        }
        deallocate_String_vector(&found);
    }
    show("delete /c", zoo_delete(zh, "/c", -1));
    show("close", zookeeper_close(zh));
    authentication(words[1]);
    sessions(words[1]);
    printf("done\n");
    return 0;
}
