package builtin_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

// prober is the only program in the container. Each argument is one thing to do.
const prober = `package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

func main() {
	for _, arg := range os.Args[1:] {
		verb, name, _ := strings.Cut(arg, " ")
		var err error
		switch verb {
		case "write":
			err = os.WriteFile(name, []byte("written"), 0o644)
		case "read":
			var text []byte
			if text, err = os.ReadFile(name); err == nil && len(text) == 0 {
				fmt.Println(name, "is empty")
				continue
			}
		case "dial":
			_, err = net.DialTimeout("tcp", name, time.Second)
		case "env":
			fmt.Println(name, os.Getenv(name))
			continue
		case "who":
			dir, _ := os.Getwd()
			fmt.Println(os.Getuid(), dir)
			continue
		case "sleep":
			fmt.Println("asleep")
			time.Sleep(time.Minute)
		case "fail":
			os.Exit(7)
		}
		if err == nil {
			fmt.Println("could", arg)
		} else {
			fmt.Println("could not", arg)
		}
	}
}
`

// containers returns a program that runs containers here, "" if there is none: the client alone
// is not enough.
func containers() string {
	for _, name := range []string{"docker", "podman"} {
		if exec.Command(name, "info").Run() == nil {
			return name
		}
	}
	return ""
}

// imageOf makes an image that has nothing but the prober, without a registry.
func imageOf(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prober.go"), []byte(prober), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", "prober", "prober.go")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "prober"))
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	headErr := w.WriteHeader(&tar.Header{Name: "prober", Mode: 0o755, Size: int64(len(data))})
	_, err = w.Write(data)
	if err := errors.Join(headErr, err, w.Close()); err != nil {
		t.Fatal(err)
	}
	const name = "localhost/kitbag-test:prober"
	load := exec.Command(program, "import", "-", name)
	load.Stdin = &layer
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command(program, "rmi", "--force", name).Run() })
	return name
}

// TestContainerRuns runs commands in containers, where there is a daemon, or what needs none.
func TestContainerRuns(t *testing.T) {
	program := containers()
	if program == "" {
		t.Skip("no containers can be run on this machine: docker info and podman info fail")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	top, err := os.MkdirTemp(home, ".kitbag-test-") // some daemons see no other /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	dir := filepath.Join(top, "project, a=b")
	for _, name := range []string{"a", ".env", "kitbag.json", "secret/id_rsa", ".git/config", "hidden/key"} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("text"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	c := &Container{Local: &builtin.Local{Dirs: []string{dir}, Sandbox: sandbox.Spec{Hide: []string{dir + "/hidden"}}}, Program: program, Image: imageOf(t, program)}
	run := func(ctx context.Context, profile permission.Profile, args ...string) (string, builtin.Exit, error) {
		var out bytes.Buffer
		exit, err := c.Run(ctx, builtin.Command{
			Args: append([]string{"/prober"}, args...), Dir: dir, Env: []string{"WORD=a b"}, Output: &out, Profile: profile,
		})
		return strings.ReplaceAll(out.String(), dir, "@"), exit, err
	}
	all := []string{
		"who", "env WORD", "read a", "write a", "write new", "write kitbag.json", "write .git/config", "read .env", "read secret/id_rsa", "write secret/id_rsa", "read hidden/key",
		"read " + top + "/outside", "write /file", "write /tmp/file", "read /var/run/docker.sock", "dial 192.0.2.1:80",
	}
	who := fmt.Sprintf("%d @\nWORD a b\n", os.Getuid())
	for profile, want := range map[permission.Profile]string{
		permission.ProfileWork: "could read a\ncould write a\ncould write new\n",
		permission.ProfileRead: "could read a\ncould not write a\ncould not write new\n",
	} {
		want = who + want + "could not write kitbag.json\ncould not write .git/config\n.env is empty\nsecret/id_rsa is empty\ncould write secret/id_rsa\ncould not read hidden/key\n" +
			"could not read " + top + "/outside\ncould not write /file\ncould write /tmp/file\ncould not read /var/run/docker.sock\ncould not dial 192.0.2.1:80\n"
		out, exit, err := run(t.Context(), profile, all...)
		if err != nil || exit.Code != 0 || !strings.HasSuffix(out, want) { // the program may warn first
			t.Errorf("%s: %+v, %v\n%s\nwant\n%s", profile, exit, err, out, want)
		}
	}
	for _, name := range []string{".env", "kitbag.json", "secret/id_rsa", ".git/config"} { // what is hidden is the null device
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "text" {
			t.Errorf("%s has changed: %q, %v", name, text, err)
		}
	}
	if _, exit, err := run(t.Context(), permission.ProfileWork, "fail"); err != nil || exit.Code != 7 {
		t.Errorf("it exits with %+v, %v", exit, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if out, _, err := run(ctx, permission.ProfileWork, "sleep"); !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(out, "asleep\n") {
		t.Errorf("a command that is ended: %v\n%s", err, out)
	}
	deadline := time.Now().Add(30 * time.Second)
	for left := "?"; left != ""; time.Sleep(50 * time.Millisecond) {
		names, err := exec.Command(program, "ps", "--quiet", "--filter=ancestor="+c.Image).Output()
		if left = string(names); err != nil || time.Now().After(deadline) {
			t.Fatalf("containers are left: %v %s", err, left)
		}
	}
}
