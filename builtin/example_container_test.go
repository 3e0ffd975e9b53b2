package builtin_test

import (
	"context"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/permission"
)

// A Container is a Backend that runs each command in a container of Docker or Podman. Files are those of this
// machine, and the working directories are mounted at their own paths, so a judgement made on this machine is
// valid in the container.
type Container struct {
	*builtin.Local
	Program string // docker or podman
	Image   string // has bash, and the programs that the agent needs
}

// Confines reports that commands of the profiles read and work are confined.
func (c *Container) Confines(p permission.Profile) error {
	if p != permission.ProfileRead && p != permission.ProfileWork {
		return errors.New("the container confines the profiles read and work only")
	}
	return nil
}

// Run implements builtin.Backend.
func (c *Container) Run(ctx context.Context, command builtin.Command) (builtin.Exit, error) {
	name := "kitbag-" + strings.ToLower(rand.Text())
	nothing, err := os.MkdirTemp("", "kitbag-") // what hidden directories look like: Podman copies them to a tmpfs
	if err != nil {
		return builtin.Exit{}, err
	}
	defer os.Remove(nothing)
	args, err := c.arguments(name, nothing, command)
	if err != nil {
		return builtin.Exit{}, err
	}
	cmd := exec.CommandContext(ctx, c.Program, args...)
	cmd.Env = append(os.Environ(), command.Env...)
	cmd.Stdout, cmd.Stderr = command.Output, command.Output
	cmd.WaitDelay = 100 * time.Millisecond
	cmd.Cancel = func() error {
		go exec.Command(c.Program, "kill", name).Run() // killing the client does not end the container
		return cmd.Process.Kill()
	}
	err = cmd.Run()
	if ctx.Err() != nil {
		return builtin.Exit{}, ctx.Err()
	}
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return builtin.Exit{}, err
	}
	if code := cmd.ProcessState.ExitCode(); code == 125 { // docker-run(1): the error is of Docker itself
		return builtin.Exit{}, fmt.Errorf("%s could not run the container", c.Program)
	}
	return builtin.Exit{Code: cmd.ProcessState.ExitCode()}, nil
}

// arguments returns the arguments of docker run. Only the working directories are writable, except for what is
// protected or hidden in them, and nothing is privileged.
func (c *Container) arguments(name, nothing string, command builtin.Command) ([]string, error) {
	if err := c.Confines(command.Profile); err != nil {
		return nil, err
	}
	if len(command.Except)+len(command.Keep) > 0 {
		return nil, errors.New("the container cannot enforce a deny rule for files; remove it, or use another backend")
	}
	spec, err := c.Spec(command.Profile)
	if err != nil {
		return nil, err
	}
	network := "none"
	if command.Network {
		network = "bridge"
	}
	args := []string{
		"run", "--rm", "--init", "--name=" + name, "--pull=never", "--network=" + network, "--read-only",
		"--tmpfs=/tmp:rw,nosuid,nodev,size=1g,mode=1777", "--cap-drop=ALL", "--security-opt=no-new-privileges",
		"--pids-limit=4096", "--memory=4g", "--user=" + strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid()), "--workdir=" + command.Dir,
	}
	if filepath.Base(c.Program) == "podman" && os.Getuid() != 0 {
		args = append(args, "--userns=keep-id") // without it, files of this user would be root's
	}
	inside := func(path string) bool {
		return slices.ContainsFunc(spec.Write, func(dir string) bool {
			rel, err := filepath.Rel(dir, path)
			return err == nil && filepath.IsLocal(rel)
		})
	}
	for _, dir := range spec.Write {
		args = append(args, mount(dir, dir, command.Profile == permission.ProfileRead))
	}
	for _, path := range spec.Protect {
		if _, err := os.Stat(path); err == nil && inside(path) {
			args = append(args, mount(path, path, true))
		}
	}
	for _, path := range spec.Hide {
		switch info, err := os.Stat(path); {
		case err != nil || !inside(path):
		case info.IsDir():
			args = append(args, mount(nothing, path, true))
		default:
			args = append(args, mount("/dev/null", path, true))
		}
	}
	for _, kv := range command.Env {
		if name, _, _ := strings.Cut(kv, "="); name != "PATH" && name != "HOME" {
			args = append(args, "--env="+name) // its value is taken from the client's environment
		}
	}
	args = append(args, "--entrypoint="+command.Args[0], c.Image)
	return append(args, command.Args[1:]...), nil
}

func mount(from, to string, readOnly bool) string {
	list := []string{"type=bind", "source=" + from, "target=" + to}
	if readOnly {
		list = append(list, "readonly")
	}
	return "--mount=" + fields(list...)
}

// fields encodes a list as the line of CSV that Docker expects.
func fields(list ...string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	w.Write(list)
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

// An agent whose commands run in containers.
func Example_container() {
	backend := &Container{Local: &builtin.Local{Dirs: []string{"/srv/project"}}, Program: "docker", Image: "golang:1.26"}
	_, err := builtin.New(builtin.Config{Dirs: []string{"/srv/project"}, Backend: backend})
	if err != nil {
		fmt.Println(err)
	}
}

// TestContainerArguments checks what a command can access, and that the installed client, if any, accepts each
// option.
func TestContainerArguments(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".env", "kitbag.json", "a,b/secret.key"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	c := &Container{Local: &builtin.Local{Dirs: []string{dir}}, Program: "docker", Image: "image"}
	command := builtin.Command{Args: []string{"bash", "-c", "echo 'a b'"}, Dir: dir, Env: []string{"PATH=/bin", "A=b c"}, Profile: permission.ProfileWork}
	args, err := c.arguments("name", "/nothing", command)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--env=A",
		"--mount=type=bind,source=" + dir + ",target=" + dir, "--mount=type=bind,source=/dev/null,target=" + dir + "/.env,readonly",
		"--mount=type=bind,source=" + dir + "/kitbag.json,target=" + dir + "/kitbag.json,readonly", `--mount=type=bind,source=/dev/null,"target=` + dir + `/a,b/secret.key",readonly`,
	} {
		if !slices.Contains(args, want) {
			t.Errorf("without %s: %q", want, args)
		}
	}
	if end := args[len(args)-4:]; !slices.Equal(end, []string{"--entrypoint=bash", "image", "-c", "echo 'a b'"}) {
		t.Errorf("the command is %q", end)
	}
	command.Profile, command.Network = permission.ProfileRead, true
	args, err = c.arguments("name", "/nothing", command)
	if err != nil || !slices.Contains(args, "--network=bridge") || !slices.Contains(args, "--mount=type=bind,source="+dir+",target="+dir+",readonly") {
		t.Errorf("read, with the network: %v %q", err, args)
	}
	for _, bad := range []builtin.Command{{Profile: permission.ProfileOpen}, {}, {Profile: permission.ProfileWork, Keep: []string{"/x"}}} {
		if _, err := c.arguments("name", "/nothing", bad); err == nil {
			t.Errorf("%+v runs in the container", bad)
		}
	}
	program, err := exec.LookPath("docker")
	if err != nil {
		return
	}
	// Without a daemon the client fails, but only after it has parsed all options.
	out, err := exec.Command(program, append([]string{"--host=unix://" + dir + "/none"}, args...)...).CombinedOutput()
	if err == nil || !strings.Contains(strings.ToLower(string(out)), "daemon") || strings.Contains(string(out), "unknown flag") || strings.Contains(string(out), "invalid argument") {
		t.Errorf("%v: %s", err, out)
	}
}
