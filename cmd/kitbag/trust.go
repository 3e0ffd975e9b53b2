package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// trusted sees to it that a project's configuration allows nothing that no person
// has agreed to: a directory may be a clone of anybody's. What was agreed to is the
// content at that place; when either changes it is asked about again. Without
// anybody to ask it is an error, not a configuration that silently counts for less:
// a script should not behave otherwise than its author saw it.
func (f *agentFlags) trusted(ctx context.Context, c *config, p *prompt) error {
	wants := c.wants()
	if f.trust || len(wants) == 0 {
		return nil
	}
	mark, err := trustMark(c)
	if err == nil && isMark(mark) {
		return nil
	}
	if p == nil {
		return usage("%s sets more than ask and deny rules, and nobody has agreed to it; read it, then add --trust, or start kitbag at a terminal here", c.file)
	}
	p.forget()
	fmt.Fprintf(p.out, "? %s, which came with this directory, wants to decide how the agent works:\n    | %s\n",
		plain(c.file), strings.Join(wants, "\n    | "))
	ok, askErr := p.yesNo(ctx, "  Do you trust it? Without, only its ask and deny rules count. [y]es / [n]o: ")
	switch {
	case ctx.Err() != nil:
		return &exit{code: exitInterrupted}
	case askErr != nil:
		return fmt.Errorf("%s: whether it is trusted: %w", c.file, askErr)
	}
	if !ok {
		*c = *c.restricted()
		return nil
	}
	if err == nil {
		err = writeMark(mark)
	}
	if err != nil { // it costs no more than to be asked again
		fmt.Fprintf(p.out, "! that you trust it could not be remembered: %s\n", plain(err.Error()))
	}
	return nil
}

// trustMark is the file whose existence says that a person trusts the configuration.
// It is in the person's own directory, and its name is made of what is trusted, so
// that nothing in a project can pass for it.
func trustMark(c *config) (string, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	place, err := filepath.EvalSymlinks(c.file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(place + "\x00" + string(c.data)))
	return filepath.Join(base, "kitbag", "trusted", hex.EncodeToString(sum[:])), nil
}

func isMark(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular()
}

func writeMark(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o600)
}
