package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
)

// A retention limits how many conversations are kept. Only the user can set it: a project must
// not remove conversations.
type retention struct {
	Keep int `json:"keep"` // the number of conversations of each directory; 0 for defaultKeep
	Days int `json:"days"` // the number of days after the last use; 0 for defaultDays
}

const (
	defaultKeep = 100
	defaultDays = 90
)

func (c *config) readSessions(data json.RawMessage) error {
	if data == nil {
		return nil
	}
	c.sessions = new(retention)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(c.sessions); err != nil || c.sessions.Keep < 0 || c.sessions.Days < 0 {
		return fmt.Errorf(`%s: sessions must be like {"keep": %d, "days": %d}, with positive numbers; it is %.40s`, c.file, defaultKeep, defaultDays, data)
	}
	return nil
}

// limits returns the settings with their defaults. r is nil if the user has no settings.
func (r *retention) limits() (keep, days int) {
	if r == nil {
		r = new(retention)
	}
	return cmp.Or(r.Keep, defaultKeep), cmp.Or(r.Days, defaultDays)
}

// prune removes conversations that chats without --session have stored: in this directory all but
// the last used ones, and in every directory those that were last used too long ago. It skips
// open conversations.
func (r *retention) prune(ctx context.Context, now time.Time) error {
	keep, days := r.limits()
	dir, ids, err := keptSessions(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids[min(keep, len(ids)):] {
		errs = append(errs, removeSession(ctx, dir, id))
	}
	files, err := filepath.Glob(filepath.Join(escapeGlob(dir), "../../*/sessions/*.json*")) // of every directory; see projectStateDir
	errs = append(errs, err)
	for _, file := range files {
		dir, name := filepath.Split(file)
		id, ok := sessionID(name)
		used := max(modTime(dir+id+sessionSuffix).Unix(), modTime(dir+id+oldSuffix).Unix())
		if unused := now.Sub(time.Unix(used, 0)); ok && unused > time.Duration(days)*24*time.Hour {
			errs = append(errs, removeSession(ctx, dir, id))
		}
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, session.ErrConflict) })...)
}

// removeSession removes a conversation with its stored results, and what older versions stored of
// it, unless it is open.
func removeSession(ctx context.Context, dir, id string) error {
	store, err := session.Dir(dir)
	if err != nil {
		return err
	}
	log, err := store.Open(ctx, id) // locks the session
	if err != nil {
		return err
	}
	old := filepath.Join(dir, id+oldSuffix)
	f, err := openOld(old)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	for _, path := range []string{old, old + importedSuffix, old + ".results", old + ".events", filepath.Join(dir, id+".results")} {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	if err = errors.Join(err, log.Close()); err != nil {
		return err
	}
	if err := store.Delete(ctx, id); !errors.Is(err, fs.ErrNotExist) { // one that was not imported does not exist
		return err
	}
	return nil
}

func sessionsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "sessions",
		Short: "List and remove the conversations that kitbag chat keeps",
		Long: fmt.Sprintf(`List and remove the conversations that kitbag chat keeps for the current directory.

When a chat begins, it removes old ones: all but the last %d of its directory, and
those of any directory that were not used for %d days. The kitbag.json in the user's
configuration directory can change this: {"sessions": {"keep": 20, "days": 30}}.
Files of --session are never removed.`, defaultKeep, defaultDays),
		Example: "  kitbag sessions list\n  kitbag sessions remove 2026-01-31-120000\n  kitbag sessions remove --all",
	}, sessionsListCommand(), sessionsRemoveCommand())
}

// A sessionReport is the output about one conversation. Its JSON must not change, since other
// programs read it.
type sessionReport struct {
	ID       string `json:"id"`
	Messages int    `json:"messages"`
	First    string `json:"first"` // the first message, or why the conversation cannot be read
}

func sessionsListCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the conversations of this directory, the last used first",
		Example: "  kitbag sessions list\n  kitbag sessions list --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, ids, err := keptSessions(cmd.Context())
			if err != nil {
				return err
			}
			list := []sessionReport{}
			for _, id := range ids {
				n, first := describeSession(cmd.Context(), dir, id)
				list = append(list, sessionReport{id, n, first})
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			if len(list) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no conversation of this directory is kept; kitbag chat keeps one")
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%d messages\t%s\n", s.ID, s.Messages, s.First)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// describeSession returns the number of messages, and the first message or why the conversation
// cannot be read.
func describeSession(ctx context.Context, dir, id string) (messages int, first string) {
	p := place{dir: dir, id: id, old: []string{id + oldSuffix}}
	sealed, plain, err := p.stores()
	if err == nil {
		err = p.importOld(ctx, plain, false) // the reason why an older one was not imported
	}
	var st *agent.State
	if err == nil {
		st, _, err = session.Read(ctx, sealed, id, 0)
	}
	if err != nil {
		return 0, shorten("! "+err.Error(), maxArguments)
	}
	return len(st.Messages), shorten(firstMessage(st), 100)
}

func sessionsRemoveCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:     "remove [--all] [ID …]",
		Short:   "Remove conversations of this directory",
		Example: "  kitbag sessions remove 2026-01-31-120000\n  kitbag sessions remove --all",
		RunE: func(cmd *cobra.Command, remove []string) error {
			dir, ids, err := keptSessions(cmd.Context())
			switch {
			case err != nil:
				return err
			case all == (len(remove) > 0): // neither --all nor ids, or both
				return usage("name the conversations to remove, or add --all; kitbag sessions list has their ids")
			case all:
				remove = ids
			}
			for _, id := range remove {
				if !slices.Contains(ids, id) {
					return usage("%s: no such conversation in this directory%s", shorten(id, maxName), suggestion(id, ids[:min(maxListed, len(ids))]))
				}
			}
			var errs []error
			for _, id := range remove {
				errs = append(errs, removeSession(cmd.Context(), dir, id))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all of this directory")
	return cmd
}

func (f *doctorFlags) checkSessions(ctx context.Context) check {
	_, ids, err := keptSessions(ctx)
	if err != nil {
		return check{"sessions", checkWarning, err.Error(), "set XDG_STATE_HOME to a directory of yours"}
	}
	keep, days := f.config.sessions.limits()
	return check{"sessions", checkOK, fmt.Sprintf("%d conversations of this directory are kept; chats keep the last %d, for %d days (kitbag sessions --help)", len(ids), keep, days), ""}
}
