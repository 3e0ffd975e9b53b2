package main

import (
	"context"
	"os"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
)

// conversation is a State that may live in a file.
type conversation struct {
	*agent.State
	path  string                                    // "" for one that ends with the program
	save  func(context.Context, *agent.State) error // nil without a file
	close func() error
}

// openConversation opens the session file at path; see [session.File].
func openConversation(path string) (*conversation, error) {
	if path == "" {
		return newConversation(), nil
	}
	s, err := session.File(path)
	if err != nil {
		return nil, err
	}
	return &conversation{State: s.State, path: path, save: s.Save, close: s.Close}, nil
}

// newConversation returns a conversation that is not kept.
func newConversation() *conversation {
	return &conversation{State: new(agent.State), close: func() error { return nil }}
}

// results returns where tool results are kept that are too long for the model:
// beside the session's file, or until the end of the program.
func (s *conversation) results() (dir agent.ResultDir, remove func() error, err error) {
	if s.path != "" {
		return agent.ResultDir(s.path + ".results"), func() error { return nil }, nil
	}
	tmp, err := os.MkdirTemp("", "kitbag-results-")
	return agent.ResultDir(tmp), func() error { return os.RemoveAll(tmp) }, err
}
