// The Go client go-zookeeper: one session's calls, results and events, a line each.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run session.go HOST:PORT
package main

import (
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

type silent struct{}

func (silent) Printf(string, ...interface{}) {}

func connect(hosts string) *zk.Conn {
	conn, events, err := zk.Connect([]string{hosts}, 10*time.Second, func(c *zk.Conn) { c.SetLogger(silent{}) })
	if err != nil {
		panic(err)
	}
	deadline := time.After(15 * time.Second)
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return conn
			}
		case <-deadline:
			panic("no session in 15 seconds")
		}
	}
}

func stat(conn *zk.Conn, s *zk.Stat) string {
	if s == nil {
		return "no stat"
	}
	owner := "nobody"
	if s.EphemeralOwner == conn.SessionID() {
		owner = "me"
	} else if s.EphemeralOwner != 0 {
		owner = "other"
	}
	return fmt.Sprintf("v%d cv%d av%d len%d n%d %s %t %t", s.Version, s.Cversion, s.Aversion,
		s.DataLength, s.NumChildren, owner, s.Czxid == s.Mzxid, s.Czxid == s.Pzxid)
}

func event(events <-chan zk.Event) {
	select {
	case e := <-events:
		fmt.Println("  event:", e.Type, e.Path, e.Err)
	case <-time.After(15 * time.Second):
		fmt.Println("  no event")
	}
}

func main() {
	conn, other := connect(os.Args[1]), connect(os.Args[1])
	open := zk.WorldACL(zk.PermAll)

	create := func(path string, data []byte, flags int32) string {
		made, err := conn.Create(path, data, flags, open)
		fmt.Println("create", path, flags, made, err)
		return made
	}
	get := func(path string) {
		data, s, err := conn.Get(path)
		fmt.Printf("get %s %q %v %s\n", path, data, err, stat(conn, s))
	}
	set := func(path string, version int32) {
		s, err := conn.Set(path, []byte("set"), version)
		fmt.Println("set", path, version, err, stat(conn, s))
	}
	remove := func(path string, version int32) { fmt.Println("delete", path, version, conn.Delete(path, version)) }
	children := func(path string) []string {
		names, s, err := conn.Children(path)
		sort.Strings(names)
		fmt.Println("children", path, names, err, stat(conn, s))
		return names
	}

	create("/g", []byte("root"), 0)
	create("/g", []byte("root"), 0)
	create("/g/e", nil, zk.FlagEphemeral)
	create("/g/e/x", nil, 0)
	create("/g/s-", []byte("x"), zk.FlagSequence)
	create("/g/s-", []byte("x"), zk.FlagSequence|zk.FlagEphemeral)
	create("/none/x", nil, 0)
	create("/g/€", []byte("€"), 0)
	_, err := conn.Create("/g/noacl", nil, 0, nil)
	fmt.Println("create without acl", err)
	protected, err := conn.CreateProtectedEphemeralSequential("/g/lock-", nil, open)
	fmt.Println("create protected", protected[len(protected)-15:], err)
	get("/g")
	get("/g/e")
	get("/none")
	set("/g", 0)
	set("/g", 0)
	set("/none", -1)
	get("/g")
	remove("/g", -1)
	remove("/g/e", 3)
	remove("/none", -1)
	children("/none")
	found, s, err := conn.Exists("/g")
	fmt.Println("exists", found, err, stat(conn, s))
	found, s, err = conn.Exists("/none")
	fmt.Println("exists", found, err)
	path, err := conn.Sync("/g")
	fmt.Println("sync", path, err)

	_, _, data, err := conn.GetW("/g")
	fmt.Println("watch data", err)
	_, _, names, err := conn.ChildrenW("/g")
	fmt.Println("watch children", err)
	_, _, later, err := conn.ExistsW("/g/later")
	fmt.Println("watch exists", err)
	_, _, _, err = conn.GetW("/none")
	fmt.Println("watch nothing", err)
	other.Create("/g/later", nil, 0, open)
	other.Set("/g", []byte("by other"), -1)
	event(data)
	event(names)
	event(later)
	_, _, later, _ = conn.ExistsW("/g/later")
	other.Delete("/g/later", -1)
	event(later)

	create("/g/mine", nil, 0)
	fmt.Println("auth", conn.AddAuth("digest", []byte("me:secret")))
	s, err = conn.SetACL("/g/mine", zk.DigestACL(zk.PermAll, "me", "secret"), -1)
	fmt.Println("set acl", err, stat(conn, s))
	acl, s, err := conn.GetACL("/g/mine")
	fmt.Println("get acl", acl, err, stat(conn, s))
	_, _, err = other.Get("/g/mine")
	fmt.Println("get by other", err)
	_, err = other.SetACL("/g/mine", open, -1)
	fmt.Println("set acl by other", err)
	_, err = conn.SetACL("/g/mine", open, 0)
	fmt.Println("set acl, old version", err)

	multi := func(name string, ops ...interface{}) {
		results, err := conn.Multi(ops...)
		fmt.Print("multi ", name, " ", err)
		for _, result := range results {
			fmt.Print(" [", result.String, " ", result.Error, " ", stat(conn, result.Stat), "]")
		}
		fmt.Println()
	}
	multi("good",
		&zk.CreateRequest{Path: "/g/t", Data: []byte("1"), Acl: open},
		&zk.CheckVersionRequest{Path: "/g/t", Version: 0},
		&zk.SetDataRequest{Path: "/g/t", Data: []byte("2"), Version: 0},
		&zk.CreateRequest{Path: "/g/t/s-", Acl: open, Flags: zk.FlagSequence})
	multi("bad",
		&zk.CreateRequest{Path: "/g/u", Acl: open},
		&zk.DeleteRequest{Path: "/g/none", Version: -1},
		&zk.SetDataRequest{Path: "/g/t", Version: -1})

	lock, second := zk.NewLock(conn, "/g/lock", open), zk.NewLock(other, "/g/lock", open)
	fmt.Println("lock", lock.Lock(), lock.Lock())
	got := make(chan error)
	go func() { got <- second.Lock() }()
	fmt.Println("unlock", lock.Unlock())
	fmt.Println("lock by other", <-got, second.Unlock())

	remove("/g/lock", -1)
	for _, name := range children("/g/t") {
		remove("/g/t/"+name, -1)
	}
	all, _, _ := conn.Children("/g")
	for _, name := range all {
		conn.Delete("/g/"+name, -1)
	}
	remove("/g", -1)
	other.Close()
	conn.Close()
	fmt.Println("done")
}
