package toolkit

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// rules are the decisions in which presets differ. Zero values are kitbag's own rules.
type rules struct {
	control     *Control // used if Config.Control is nil; nil means ResetTools
	labelsOnly  bool     // see Config.LabelsOnly
	order       listOrder
	onDuplicate duplicateRule
	parents     parentRule
	ungrouped   ungroupedRule

	// defaultLabel is the label of ungrouped tools, and what an unset ceiling grants.
	// If it is empty, ungrouped tools have the label "basic" and an unset ceiling grants everything.
	defaultLabel string

	// toolLabels makes a tool of the basic group a member of the groups that its method Labels names; see [Wags] and
	// [MCP]. Anyone who provides a tool can then put it into any group.
	toolLabels bool

	pathNames       bool // a group's name starts with its parent's name and a dot, a tool's with its group's and a dot
	replaceControls bool // a tool of the host may replace the control tool of the same name
	opaque          bool // a hidden tool looks like one that does not exist
	offsetCursors   bool // cursors of View.Page are decimal positions
	everyTransition bool // a transition is reported even if the visible tools stay the same
	quietUpdates    bool // changes of the catalogue are reported only by Toolkit.Refresh
	looseQuota      bool // initial groups may exceed quotas; no group can be opened while they do
	quietRefusals   bool // enable_tools and disable_tools succeed even if no group is named or every group is refused
}

// A listOrder is the order in which tools are listed.
type listOrder uint8

const (
	byActivation   listOrder = iota // the order in which their groups were opened, so that opening a group only appends
	byRegistration                  // the order in which the tools were registered
	byName
)

// A duplicateRule says what happens when a tool has the name of an earlier tool.
type duplicateRule uint8

const (
	refused       duplicateRule = iota
	laterShadows                // the later tool hides the earlier while both are visible
	laterReplaces               // the later tool replaces the earlier
)

// A parentRule says what Group.Parents means.
type parentRule uint8

const (
	parentGates    parentRule = iota // all parents must be open to open the group
	gateWithCycles                   // like parentGates, but a group may be its own ancestor and then never opens
	parentContains                   // selecting a parent with Toolkit.Select selects the group; unknown parents are allowed
)

// An ungroupedRule says whether tools in no named group are visible.
type ungroupedRule uint8

const (
	alwaysListed    ungroupedRule = iota
	hiddenUngrouped               // never listed
	unlabelled                    // always listed, and granted only by "*" or an unset ceiling
)

const defaultBasicLabel = "basic"

// basicLabel returns the label by which a ceiling grants ungrouped tools.
func (r *rules) basicLabel() string { return cmp.Or(r.defaultLabel, defaultBasicLabel) }

// grants reports whether the ceiling, which may be unset, grants one of the labels.
func (r *rules) grants(ceiling Ceiling, labels []string) bool {
	if ceiling.isSet {
		return ceiling.grants(labels)
	}
	return r.defaultLabel == "" || slices.Contains(labels, r.defaultLabel)
}

// sort sorts visible tools, given in order of activation, into the order of the rules.
func (r *rules) sort(entries []*entry) {
	switch r.order {
	case byName:
		slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	case byRegistration:
		slices.SortFunc(entries, func(a, b *entry) int { return int(a.seq - b.seq) })
	}
}

// checkPath checks the name of a tool if names are paths: the part before the last dot must be the tool's group. A tool
// of the basic group, whose name is empty, may have no dot, or any existing group before the dot.
func (r *rules) checkPath(name, group string, hasGroup func(string) bool) error {
	dot := strings.LastIndexByte(name, '.')
	switch {
	case !r.pathNames:
		return nil
	case strings.TrimSpace(name[dot+1:]) == "":
		return errors.New("the last part of the name, which is a path, is empty")
	case dot < 0 && group == "":
		return nil
	case dot < 0:
		return fmt.Errorf("the name must start with %q", group+".")
	case group != "" && name[:dot] != group:
		return fmt.Errorf("the name must start with %q and have no further dot", group+".")
	case !hasGroup(name[:dot]):
		return fmt.Errorf("group %q does not exist; add it or rename the tool", name[:dot])
	}
	return nil
}

// cursorAfter returns the cursor of the page that follows the item with this position and name.
func (r *rules) cursorAfter(position int, name string) string {
	if r.offsetCursors {
		return strconv.Itoa(position + 1)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(name))
}

// positionAfter returns the position at which the cursor's page starts in a list of names. If the cursor's name is no
// longer in the list, a sorted list continues after the place of the name; for any other list the cursor is invalid.
func (r *rules) positionAfter(cursor string, names []string) (int, error) {
	badCursor := fmt.Errorf("cursor %q: %w", cursor, ErrCursor)
	if r.offsetCursors {
		position, err := strconv.Atoi(cursor)
		if err != nil || position < 0 || position > len(names) {
			return 0, badCursor
		}
		return position, nil
	}
	last, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, badCursor
	}
	if i := slices.Index(names, string(last)); i >= 0 {
		return i + 1, nil
	}
	if !slices.IsSorted(names) {
		return 0, badCursor
	}
	position, _ := slices.BinarySearch(names, string(last))
	return position, nil
}
