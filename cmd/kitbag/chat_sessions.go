package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// A chat without --session keeps its conversation in the user's state directory, in a separate
// folder for each working directory, which is a session.Dir. The id of a conversation, for
// --resume, is the time when it began.

// maxListed is the maximum number of conversations in a list.
const maxListed = 20

// keptDir returns the folder of the current directory's conversations, which may not exist yet.
func keptDir() (string, error) {
	state, err := projectStateDir()
	if err != nil {
		return "", fmt.Errorf("no place to keep conversations: %w", err)
	}
	return filepath.Join(state, "sessions"), nil
}

// keptSessions returns the folder of the current directory's conversations, and their ids, the
// most recently used first. It imports those of older versions; one that cannot be imported also
// has an id.
func keptSessions(ctx context.Context) (dir string, ids []string, err error) {
	if dir, err = keptDir(); err != nil {
		return "", nil, err
	}
	if err := importAll(ctx, dir, false); err != nil {
		return "", nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	usedAt := map[string]time.Time{}
	for _, e := range entries {
		id, ok := sessionID(e.Name())
		used := modTime(filepath.Join(dir, e.Name()))
		if ok && e.Type().IsRegular() && used.After(usedAt[id]) {
			usedAt[id] = used
		}
	}
	ids = slices.Collect(maps.Keys(usedAt))
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(usedAt[b].Compare(usedAt[a]), cmp.Compare(b, a)) })
	return dir, ids, nil
}

// sessionID returns the id of the session that has a file with this name.
func sessionID(name string) (id string, ok bool) {
	if id, ok = strings.CutSuffix(name, sessionSuffix); !ok {
		id, ok = strings.CutSuffix(name, oldSuffix)
	}
	return id, ok && session.CheckID(id) == nil
}

// newSession makes the folder dir, and returns the path of a new conversation in dir, whose id is
// none of ids.
func newSession(dir string, ids []string, now time.Time) (string, error) {
	id := now.Format("2006-01-02-150405")
	for n := 2; slices.Contains(ids, id); n++ {
		id = fmt.Sprintf("%s-%d", now.Format("2006-01-02-150405"), n)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("keep the conversation: %w; set XDG_STATE_HOME to a directory in which you may write, or add --session FILE", err)
	}
	return filepath.Join(dir, id), nil
}

// chooseSession sets f.session to the path of a kept conversation or, without --continue and
// --resume, of a new one.
func (f *chatFlags) chooseSession(ctx context.Context, p *prompt) error {
	if f.session != "" {
		if f.continueLast || f.resume {
			return usage("--session names the conversation; leave --continue and --resume out")
		}
		return nil
	}
	dir, ids, err := keptSessions(ctx)
	if err != nil {
		return err
	}
	if (f.continueLast || f.resume) && len(ids) == 0 {
		return usage("no conversation is kept for this directory; start one without --continue and --resume")
	}
	id, listed := "", ids[:min(maxListed, len(ids))]
	switch {
	case f.resumeID != "":
		if id = f.resumeID; !slices.Contains(ids, id) {
			return usage("--resume %s: no such conversation in this directory%s", shorten(id, maxName), suggestion(id, listed))
		}
	case f.resume:
		if id, err = p.pickSession(ctx, dir, listed); err != nil {
			return err
		}
	case f.continueLast:
		id = ids[0]
	default:
		if err := f.config.sessions.prune(ctx, time.Now()); err != nil {
			fmt.Fprintf(p.out, "! old conversations are not removed: %s\n", plainLine(err.Error()))
		}
		f.session, err = newSession(dir, ids, time.Now())
		return err
	}
	f.session = filepath.Join(dir, id)
	return nil
}

func (p *prompt) pickSession(ctx context.Context, dir string, ids []string) (string, error) {
	p.discardTyped()
	for i, id := range ids {
		_, about := describeSession(ctx, dir, id)
		fmt.Fprintf(p.out, "%3d  %s  %s\n", i+1, id, about)
	}
	for {
		line, err := p.readTrimmed(ctx, fmt.Sprintf("  Which conversation? 1 to %d: ", len(ids)))
		if err != nil {
			return "", err
		}
		if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(ids) {
			return ids[n-1], nil
		}
	}
}

// firstMessage returns the first text of the user, as the title of a conversation.
func firstMessage(st *agent.State) string {
	for _, m := range st.Messages {
		if m.Role == message.RoleUser && m.Text() != "" {
			return m.Text()
		}
	}
	return "(no message)"
}

// lastExchange returns the last message of the user that has text, and the model's last text
// after it.
func lastExchange(st *agent.State) (sent, answer string) {
	for _, m := range slices.Backward(st.Messages) {
		switch {
		case m.Text() == "":
		case m.Role == message.RoleUser:
			return m.Text(), answer
		case m.Role == message.RoleAssistant && answer == "":
			answer = m.Text()
		}
	}
	return "", answer
}

// exportMarkdown formats a conversation as Markdown, without the results of tools.
func exportMarkdown(st *agent.State) string {
	var b strings.Builder
	titles := map[message.Role]string{message.RoleUser: "User", message.RoleAssistant: "Agent"}
	for _, m := range st.Messages {
		if title := titles[m.Role]; title != "" && m.Text() != "" {
			fmt.Fprintf(&b, "## %s\n\n%s\n\n", title, m.Text())
		}
		for _, c := range m.ToolCalls() {
			fmt.Fprintf(&b, "    %s %s\n\n", c.Name, shorten(arguments(c.Input, " "), maxArguments))
		}
	}
	return b.String()
}
