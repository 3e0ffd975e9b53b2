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

// A conversation is a State that may be stored in a session file.
type conversation struct {
	*agent.State
	path  string                                    // the session file; "" if the conversation is not stored
	save  func(context.Context, *agent.State) error // nil if the conversation is not stored
	close func() error                              // unlocks the session file
}

// openConversation opens the session file at path, or returns a conversation that is not stored if path is "". The file
// must be sealed with the user's key, as anyone who can write to it could add an allow rule. With trust it seals an
// unsealed file. It calls warn if events cannot be stored.
func openConversation(ctx context.Context, path string, trust bool, warn func(string)) (*conversation, error) {
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
			return nil, fmt.Errorf("%w; read it, then add --trust-session to trust its conversation and its rules", err)
		}
		if err := session.Seal(ctx, path, key); err != nil {
			return nil, err
		}
		s, err = session.SealedFile(path, key)
	}
	if err != nil {
		return nil, err
	}
	// Fail before a model call costs money if the session cannot be saved.
	probe, err := os.CreateTemp(filepath.Dir(path), ".kitbag-session-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--session %s: its directory is not writable: %w", path, err), s.Close())
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return withEvents(s, path, warn), nil
}

// newConversation returns a conversation that is not stored.
func newConversation() *conversation {
	return &conversation{State: new(agent.State), close: func() error { return nil }}
}

// finished reports whether there is nothing to continue: no call waits, and the last message, if any, is the model's.
func (s *conversation) finished() bool {
	n := len(s.Messages)
	return len(s.Pending()) == 0 && (n == 0 || s.Messages[n-1].Role == message.RoleAssistant)
}

// resultDir returns the directory for tool results that are too long for the model: next to the session file, or without
// such a file a temporary one, which remove removes.
func (s *conversation) resultDir() (dir agent.ResultDir, remove func() error, err error) {
	if s.path != "" {
		return agent.ResultDir(s.path + ".results"), func() error { return nil }, nil
	}
	tmp, err := tempDir("kitbag-results-")
	return agent.ResultDir(tmp), func() error { return os.RemoveAll(tmp) }, err
}

// tempDir makes a temporary directory, which the caller must remove.
func tempDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", fmt.Errorf("create a temporary directory: %w; set TMPDIR to a writable directory", err)
	}
	return dir, nil
}
