package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent/session"
)

// A retention limits how many conversations are kept. Only the user can set it: a project must not remove conversations.
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

// prune removes conversations that chats without --session have stored: in this directory all but the last used ones, and
// in every directory those that were last used too long ago. It skips open conversations.
func (r *retention) prune(now time.Time) error {
	keep, days := r.limits()
	dir, ids, err := keptSessions()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids[min(keep, len(ids)):] {
		errs = append(errs, removeSession(dir, id))
	}
	files, err := filepath.Glob(filepath.Join(dir, "../../*/sessions/*.json")) // of every directory; see projectStateDir
	errs = append(errs, err)
	for _, file := range files {
		if info, err := os.Lstat(file); err == nil && now.Sub(info.ModTime()) > time.Duration(days)*24*time.Hour {
			dir, name := filepath.Split(file)
			errs = append(errs, removeSession(dir, strings.TrimSuffix(name, ".json")))
		}
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, session.ErrConflict) })...)
}

// removeSession removes a conversation with its stored results and events, unless it is open.
func removeSession(dir, id string) error {
	file := filepath.Join(dir, id+".json")
	s, err := session.File(file) // locks the file
	if errors.Is(err, session.ErrConflict) {
		return err
	}
	err = errors.Join(os.Remove(file), os.RemoveAll(file+".results"), os.RemoveAll(eventDir(file)))
	if s != nil { // nil for a file that is not a valid session, which is removed too
		err = errors.Join(err, s.Close())
	}
	return err
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

// A sessionReport is the output about one conversation. Its JSON must not change, since other programs read it.
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
			dir, ids, err := keptSessions()
			if err != nil {
				return err
			}
			key, err := userKey()
			if err != nil {
				return err
			}
			list := []sessionReport{}
			for _, id := range ids {
				n, first := describeSession(dir, id, key)
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

// describeSession returns the number of messages, and the first message or why the conversation cannot be read.
func describeSession(dir, id string, key []byte) (messages int, first string) {
	st, err := session.ReadFile(filepath.Join(dir, id+".json"), key)
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
			dir, ids, err := keptSessions()
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
				errs = append(errs, removeSession(dir, id))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all of this directory")
	return cmd
}

func (f *doctorFlags) checkSessions() check {
	_, ids, err := keptSessions()
	if err != nil {
		return check{"sessions", checkWarning, err.Error(), "set XDG_STATE_HOME to a directory of yours"}
	}
	keep, days := f.config.sessions.limits()
	return check{"sessions", checkOK, fmt.Sprintf("%d conversations of this directory are kept; chats keep the last %d, for %d days (kitbag sessions --help)", len(ids), keep, days), ""}
}
