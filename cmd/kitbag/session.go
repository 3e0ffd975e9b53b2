package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// conversation is a State that may live in a file.
type conversation struct {
	*agent.State
	path  string                                    // "" for one that ends with the program
	save  func(context.Context, *agent.State) error // nil without a file
	close func() error
}

// openConversation opens the session file at path, which must be sealed with the user's
// key unless it is trusted: whoever can write to it could add an allow rule.
func openConversation(ctx context.Context, path string, trust bool) (*conversation, error) {
	if path == "" {
		return newConversation(), nil
	}
	key, err := userKey()
	if err != nil {
		return nil, err
	}
	s, err := session.SealedFile(path, key)
	if errors.Is(err, session.ErrUnsealed) {
		if !trust {
			return nil, fmt.Errorf("%w; read it, then add --trust-session to believe what it says was said and the rules in it", err)
		}
		if err := session.Seal(ctx, path, key); err != nil {
			return nil, err
		}
		s, err = session.SealedFile(path, key)
	}
	if err != nil {
		return nil, err
	}
	// That it cannot be saved must come out before the model was paid for, not after.
	probe, err := os.CreateTemp(filepath.Dir(path), ".kitbag-session-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--session %s: nothing can be written beside it: %w", path, err), s.Close())
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &conversation{State: s.State, path: path, save: s.Save, close: s.Close}, nil
}

// newConversation returns a conversation that is not kept.
func newConversation() *conversation {
	return &conversation{State: new(agent.State), close: func() error { return nil }}
}

// finished reports whether there is nothing to go on with: no call waits, and the
// model has had the last word, or nobody has said anything.
func (s *conversation) finished() bool {
	n := len(s.Messages)
	return len(s.Pending()) == 0 && (n == 0 || s.Messages[n-1].Role == message.RoleAssistant)
}

// results returns where tool results are kept that are too long for the model:
// beside the session's file, or until the end of the program.
func (s *conversation) results() (dir agent.ResultDir, remove func() error, err error) {
	if s.path != "" {
		return agent.ResultDir(s.path + ".results"), func() error { return nil }, nil
	}
	tmp, err := tempDir("kitbag-results-")
	return agent.ResultDir(tmp), func() error { return os.RemoveAll(tmp) }, err
}

// tempDir makes a directory that is gone with the program.
func tempDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", fmt.Errorf("a temporary directory: %w; set TMPDIR to a place that can be written", err)
	}
	return dir, nil
}
