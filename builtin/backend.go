package builtin

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/kitbag-go/kitbag/permission"
)

// A Backend is the machine that the tools work on. Paths are absolute. It must
// be safe for concurrent use.
//
// Three optional methods serve to judge a call before it runs. Confines(permission.Profile)
// error returns nil if Run confines every command to the profile read or work, and else why
// not; without it no command is confined. Readlink(path string) (string, error) reads a
// symbolic link and fails for anything else; without it the links of this machine are used.
// Identify(path string) permission.File returns the file at a path without links; without
// it a file is identified by its path alone.
type Backend interface {
	// Run runs a program with empty standard input until it ends. It also ends a process
	// that the program left behind and that still holds the output. If ctx ends first, Run
	// ends every process that the program started and returns the error of ctx, within
	// 200 ms. Other errors mean that the program did not start; one that fails is not an
	// error.
	Run(ctx context.Context, cmd Command) (Exit, error)

	// Open opens a regular file or a directory for reading and refuses anything else
	// with [ErrNotRegular], without blocking. A directory is an [fs.ReadDirFile]. If it
	// is also an [fs.SubFS], searches use its Open for the regular files and its Sub for
	// the directories directly in it; both are like Open here, and neither follows a
	// symbolic link.
	//
	// A file with a Device and an Inode is one that was judged: if its path now leads to
	// another file, or a link was put in its path, Open fails with [ErrMoved].
	Open(ctx context.Context, file permission.File) (fs.File, error)

	// Write replaces the content of the file by data, completely or not at all, and
	// creates missing directories. It keeps the mode of an existing file. Judged files
	// are as for Open; one that is New is created in, or below, the directory that was
	// judged, and fails with [ErrMoved] if it exists now.
	Write(ctx context.Context, file permission.File, data []byte) error
}

// A Command is a program to run.
type Command struct {
	Args   []string  // the program and its arguments; at least one
	Dir    string    // where it runs
	Env    []string  // all of its environment, as "name=value"; nil is that of the process, adapted to judged commands
	Output io.Writer // receives standard output and error as they arrive, from one goroutine, until Run returns

	// Profile and Network are the access that the judgement grants. They are "" and false
	// if the command was not judged, or the judgement does not say.
	Profile permission.Profile
	Network bool

	// Except are patterns of absolute paths that a confined program must not read, and Keep
	// of those that it must not change: deny rules cover them. See [permission.Judgement].
	Except, Keep []string
}

// An Exit says how a program ended.
type Exit struct {
	Code   int    // 0 is success; -1 after a signal
	Signal string // the signal that ended it, such as "killed"; empty for none

	// LeftBehind means that a process which the program left behind still held the
	// output, and was ended.
	LeftBehind bool

	// Denied says, in sentences for the model, what a sandbox denied the program or ended
	// with it, and how to grant it; "" for nothing.
	Denied string
}

// ErrNotRegular is the error of opening anything but a regular file or a directory:
// devices, pipes, sockets, and the files of /proc and /sys, which the kernel generates.
var ErrNotRegular = errors.New("neither a regular file nor a directory")

// ErrMoved is the error of opening or writing a file that is not the one that was judged: it
// was replaced, or a symbolic link was put in its path. The same call is judged again when
// it is repeated.
var ErrMoved = errors.New("the file moved after the call was judged, so nothing was done; make the call again")
