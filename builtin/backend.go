package builtin

import (
	"context"
	"errors"
	"io"
	"io/fs"
)

// A Backend is the machine that the tools work on. Paths are absolute. It must
// be safe for concurrent use. Calls are judged by the symbolic links of this
// machine unless it has a method Readlink(path string) (string, error), which
// fails for what is no link.
type Backend interface {
	// Run runs a program, with nothing to read on standard input, until it
	// ends. A process that it left behind and that still holds the output ends
	// too. If ctx ends first, Run ends every process that the program started
	// and returns the error of ctx, within 200 ms. Other errors mean that the
	// program did not start; a program that fails is no error.
	Run(ctx context.Context, cmd Command) (Exit, error)

	// Open opens a regular file or a directory for reading and refuses
	// everything else with [ErrNotRegular], without waiting for it. A directory
	// is an [fs.ReadDirFile]. If it is an [fs.SubFS] too, searches use its Open
	// for the regular files and its Sub for the directories right in it; what
	// they return is as here.
	Open(ctx context.Context, path string) (fs.File, error)

	// Write makes data the content of the file, all of it or nothing, and
	// creates missing directories. A symbolic link is followed; the mode of an
	// existing file is kept.
	Write(ctx context.Context, path string, data []byte) error
}

// A Command is a program to run.
type Command struct {
	Args   []string  // the program and its arguments; at least one
	Dir    string    // where it runs
	Output io.Writer // receives standard output and error as they come, from one goroutine, until Run returns
}

// An Exit says how a program ended.
type Exit struct {
	Code   int    // 0 is success; -1 after a signal
	Signal string // the signal that ended it, such as "killed"; empty for none
}

// ErrNotRegular is the error of opening what is neither a regular file nor a
// directory: devices, pipes, sockets, and the files of /proc and /sys, whose
// content is the kernel's.
var ErrNotRegular = errors.New("neither a regular file nor a directory")
