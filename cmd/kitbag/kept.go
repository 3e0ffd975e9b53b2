package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// A chat without --session keeps its conversation in the user's state directory, in a folder for each directory
// that was worked in. The files are named by the time of their beginning, which is also the id for --resume.

// listed is how many conversations a list has.
const listed = 20

// keptSessions returns the folder of the current directory's conversations, and their ids, the last used first.
func keptSessions() (dir string, ids []string, err error) {
	state, err := directoryState()
	if err != nil {
		return "", nil, fmt.Errorf("no place to keep conversations: %w", err)
	}
	dir = filepath.Join(state, "sessions")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	used := map[string]time.Time{}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if info, err := e.Info(); ok && err == nil && info.Mode().IsRegular() {
			ids = append(ids, id)
			used[id] = info.ModTime()
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), cmp.Compare(b, a)) })
	return dir, ids, nil
}

// newSession returns the file of a conversation that begins now.
func newSession(dir string, ids []string, now time.Time) (string, error) {
	id := now.Format("2006-01-02-150405")
	for n := 2; slices.Contains(ids, id); n++ {
		id = fmt.Sprintf("%s-%d", now.Format("2006-01-02-150405"), n)
	}
	return filepath.Join(dir, id+".json"), os.MkdirAll(dir, 0o700)
}

// chooseSession sets the file of the conversation as --continue and --resume say.
func (f *chatFlags) chooseSession(ctx context.Context, p *prompt) error {
	if f.session != "" {
		if f.cont || f.resume {
			return usage("--session names the conversation; leave --continue and --resume out")
		}
		return nil
	}
	dir, ids, err := keptSessions()
	if err != nil {
		return err
	}
	if (f.cont || f.resume) && len(ids) == 0 {
		return usage("no conversation is kept for this directory; start one without --continue and --resume")
	}
	id := ""
	switch {
	case f.resumeID != "":
		if id = f.resumeID; !slices.Contains(ids, id) {
			return usage("--resume %s: no such conversation in this directory%s", shorten(id, maxName), suggestion(id, ids[:min(listed, len(ids))]))
		}
	case f.resume:
		if id, err = p.chooseKept(ctx, dir, ids[:min(listed, len(ids))]); err != nil {
			return err
		}
	case f.cont:
		id = ids[0]
	default:
		f.session, err = newSession(dir, ids, time.Now())
		return err
	}
	f.session = filepath.Join(dir, id+".json")
	return nil
}

// chooseKept lists conversations and asks for one.
func (p *prompt) chooseKept(ctx context.Context, dir string, ids []string) (string, error) {
	key, err := userKey()
	if err != nil {
		return "", err
	}
	p.discardTyped()
	for i, id := range ids {
		about := ""
		if st, err := session.ReadFile(filepath.Join(dir, id+".json"), key); err != nil {
			about = "! " + err.Error()
		} else {
			about = firstSaid(st)
		}
		fmt.Fprintf(p.out, "%3d  %s  %s\n", i+1, id, shorten(about, 100))
	}
	for {
		line, err := p.read(ctx, fmt.Sprintf("  Which conversation? 1 to %d: ", len(ids)))
		if err != nil {
			return "", err
		}
		if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(ids) {
			return ids[n-1], nil
		}
	}
}

// firstSaid returns the first message of the user.
func firstSaid(st *agent.State) string {
	for _, m := range st.Messages {
		if m.Role == message.RoleUser && m.Text() != "" {
			return m.Text()
		}
	}
	return "(nothing was said)"
}

// lastExchange returns the last message of the user that has text, and the model's last text after it.
func lastExchange(st *agent.State) (said, answered string) {
	for _, m := range slices.Backward(st.Messages) {
		switch {
		case m.Text() == "":
		case m.Role == message.RoleUser:
			return m.Text(), answered
		case m.Role == message.RoleAssistant && answered == "":
			answered = m.Text()
		}
	}
	return "", answered
}

// exported formats a conversation as Markdown. Results of tools are left out.
func exported(st *agent.State) string {
	var b strings.Builder
	for _, m := range st.Messages {
		switch m.Role {
		case message.RoleUser:
			if m.Text() != "" {
				fmt.Fprintf(&b, "## User\n\n%s\n\n", m.Text())
			}
		case message.RoleAssistant:
			if m.Text() != "" {
				fmt.Fprintf(&b, "## Agent\n\n%s\n\n", m.Text())
			}
			for _, c := range m.ToolCalls() {
				fmt.Fprintf(&b, "    %s %s\n\n", c.Name, shorten(arguments(c.Input, " "), maxArguments))
			}
		}
	}
	return b.String()
}
