package term

import (
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
)

// state is all that the terminal shows and waits for. It changes in update only.
type state struct {
	options
	width, height int
	now           time.Time

	editor  textarea.Model
	pastes  []string // the texts behind the notes about pasted text in the editor
	menu    []Candidate
	picked  int // in menu
	recall  int // the entry of the history that is shown; len for none
	draft   string
	queue   []string // messages that were sent while the agent worked
	reader  chan<- answer
	leaving bool // the next interrupt leaves
	left    bool // the person has left; the next reader gets to know

	work     *work
	tail     string // the end of the text that streams in
	question *question
	asked    int // questions so far
}

// options are what does not change.
type options struct {
	colour   bool
	history  *History
	complete func(word string) []Candidate
}

// A Candidate is what the word before the cursor may become.
type Candidate struct{ Text, Help string }

// work is what runs and can be interrupted.
type work struct {
	label    string
	tokens   int
	since    time.Time
	cancel   func()
	stopping bool
	forced   bool
}

// A question is answered by one of keys, or by a line of text if keys is empty.
type question struct {
	id    int
	label string
	keys  string
	line  textarea.Model
	armed bool // the keys that come now were typed after the question was shown
	reply chan<- answer
}

type answer struct {
	text string
	err  error
}

// What the Screen sends to the state. A channel of an answer has room for it.
type (
	readMsg struct{ reply chan<- answer }
	askMsg  struct {
		label, keys, text string // text is in the line at first
		reply             chan<- answer
	}
	dropMsg struct{ reply chan<- answer } // the answer is not wanted any more
	workMsg struct {
		label  string
		cancel func()
	}
	statusMsg struct {
		label  string // "" to keep it
		tokens int
	}
	doneMsg struct{}
	tailMsg struct{ text string }
	tickMsg time.Time
	armMsg  struct{ id int }
)

const (
	maxEditorRows = 8
	maxMenu       = 5

	// armLate is when a question is answered by keys in a terminal that does not say where its cursor is.
	armLate = 2 * time.Second
)

func newState(o options) *state {
	if o.history == nil {
		o.history = &History{}
	}
	s := &state{options: o, width: 80, height: 24, editor: newEditor("> "), recall: len(o.history.entries)}
	return s
}

// newEditor returns a text area whose first row begins with the prompt.
func newEditor(prompt string) textarea.Model {
	e := textarea.New()
	e.ShowLineNumbers = false
	e.EndOfBufferCharacter = ' '
	e.CharLimit, e.MaxWidth = 0, 0
	e.DynamicHeight, e.MinHeight, e.MaxHeight, e.MaxContentHeight = true, 1, maxEditorRows, 1<<20
	e.SetVirtualCursor(false)
	e.SetStyles(textarea.Styles{})
	e.SetPromptFunc(len(prompt), func(i textarea.PromptInfo) string {
		if i.LineNumber == 0 {
			return prompt
		}
		return strings.Repeat(" ", len(prompt))
	})
	e.KeyMap.InsertNewline.SetKeys("alt+enter", "ctrl+j", "shift+enter")
	e.KeyMap.Paste.SetEnabled(false) // the terminal pastes
	e.Focus()
	return e
}

// update changes the state by a message of the terminal or the Screen.
func (s *state) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
		s.editor.SetWidth(max(s.width-1, 10))
		if s.question != nil && s.question.keys == "" {
			s.question.line.SetWidth(max(s.width-1, 10))
		}
	case tea.KeyPressMsg:
		return s.key(msg)
	case tea.PasteMsg:
		s.paste(msg.Content)
	case tea.CursorPositionMsg:
		s.arm(s.asked)
	case armMsg:
		s.arm(msg.id)
	case tickMsg:
		s.now = time.Time(msg)
		if s.work != nil {
			return tick()
		}
	case readMsg:
		s.read(msg.reply)
	case askMsg:
		return s.ask(msg)
	case dropMsg:
		s.drop(msg.reply)
	case workMsg:
		s.work = &work{label: msg.label, cancel: msg.cancel, since: s.now}
		s.leaving = false
		return tick()
	case statusMsg:
		s.status(msg)
	case doneMsg:
		s.work = nil
	case tailMsg:
		s.tail = msg.text
	}
	return nil
}

func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) }) }

func (s *state) status(msg statusMsg) {
	if s.work == nil {
		return
	}
	if msg.label != "" {
		s.work.label = msg.label
	}
	s.work.tokens = msg.tokens
}

// read gives the next message to reply, now or when it is there.
func (s *state) read(reply chan<- answer) {
	switch {
	case s.left:
		reply <- answer{err: ErrLeft}
	case len(s.queue) > 0:
		reply <- answer{text: s.queue[0]}
		s.queue = s.queue[1:]
	default:
		s.reader = reply
	}
}

func (s *state) ask(msg askMsg) tea.Cmd {
	s.asked++
	q := &question{id: s.asked, label: msg.label, keys: msg.keys, reply: msg.reply}
	if q.keys == "" {
		q.line = newEditor("? ")
		q.line.SetWidth(max(s.width-1, 10))
		q.line.SetValue(msg.text)
	}
	s.question = q
	return tea.Batch(tea.RequestCursorPosition, tea.Tick(armLate, func(time.Time) tea.Msg { return armMsg{q.id} }))
}

func (s *state) arm(id int) {
	if s.question != nil && s.question.id == id {
		s.question.armed = true
	}
}

// drop forgets who waits at reply.
func (s *state) drop(reply chan<- answer) {
	if s.reader == reply {
		s.reader = nil
	}
	if s.question != nil && s.question.reply == reply {
		s.question = nil
	}
}

// key is a key that was pressed.
func (s *state) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	if name != "ctrl+c" {
		s.leaving = false
	}
	switch {
	case name == "ctrl+c":
		return s.interrupt()
	case name == "ctrl+z":
		return tea.Suspend
	case s.question != nil:
		s.answerKey(k, name)
	default:
		s.editKey(k, name)
	}
	return nil
}

// interrupt stops the work, or else empties the editor, or else leaves. It never sends what was typed.
func (s *state) interrupt() tea.Cmd {
	q := s.question
	if q != nil { // the work ends before its question does
		s.question = nil
		defer func() { q.reply <- answer{err: ErrInterrupted} }()
	}
	switch {
	case s.work == nil && q != nil:
	case s.work != nil && s.work.stopping:
		s.work.forced = true
		return tea.Quit
	case s.work != nil:
		s.work.stopping = true
		s.work.cancel()
		if len(s.queue) > 0 { // back into the editor, as they were meant to follow the work
			s.setValue(strings.Join(append(s.queue, s.editor.Value()), "\n"))
			s.queue = nil
		}
	case s.leaving:
		s.leave()
	default:
		s.clear()
		s.leaving = true
	}
	return nil
}

func (s *state) leave() {
	s.left = true
	if s.reader != nil {
		s.reader <- answer{err: ErrLeft}
		s.reader = nil
	}
}

// answerKey is a key for the question.
func (s *state) answerKey(k tea.KeyPressMsg, name string) {
	q := s.question
	if !q.armed {
		return // typed before the question was shown
	}
	reply := func(a answer) {
		s.question = nil
		q.reply <- a
	}
	switch {
	case q.keys != "":
		if t := strings.ToLower(k.Text); len(t) == 1 && strings.Contains(q.keys, t) {
			reply(answer{text: t})
		}
	case name == "enter":
		reply(answer{text: q.line.Value()})
	case name == "ctrl+d" && q.line.Value() == "":
		reply(answer{err: ErrLeft})
	default:
		q.line, _ = q.line.Update(k)
	}
}

// editKey is a key for the editor.
func (s *state) editKey(k tea.KeyPressMsg, name string) {
	switch {
	case name == "enter":
		s.enter()
		return
	case name == "ctrl+d" && s.editor.Value() == "":
		if s.work == nil {
			s.leave()
		}
		return
	case name == "tab":
		s.completeWord()
		return
	case (name == "up" || name == "down") && len(s.menu) > 0:
		s.picked += len(s.menu)
		if name == "up" {
			s.picked--
		} else {
			s.picked++
		}
		s.picked %= len(s.menu)
		return
	case name == "up" && s.editor.Line() == 0 && s.editor.LineInfo().RowOffset == 0:
		s.show(s.recall - 1)
		return
	case name == "down" && s.editor.Line() == s.editor.LineCount()-1 && s.editor.LineInfo().RowOffset+1 >= s.editor.LineInfo().Height:
		s.show(s.recall + 1)
		return
	case name == "esc":
		s.menu = nil
		return
	}
	s.editor, _ = s.editor.Update(k)
	s.suggest()
}

// enter sends the text of the editor. A backslash at its end continues it on the next line.
func (s *state) enter() {
	value := s.editor.Value()
	if more, ok := strings.CutSuffix(value, `\`); ok {
		s.setValue(more + "\n")
		return
	}
	text := strings.TrimSpace(s.expand(value))
	if text == "" {
		return
	}
	_ = s.history.Add(text) // a history that cannot be stored still works until the end
	s.clear()
	if s.reader == nil {
		s.queue = append(s.queue, text)
		return
	}
	s.reader <- answer{text: text}
	s.reader = nil
}

// clear empties the editor.
func (s *state) clear() {
	s.editor.Reset()
	s.pastes, s.menu, s.draft, s.recall = nil, nil, "", len(s.history.entries)
}

func (s *state) setValue(text string) {
	s.editor.SetValue(text)
	s.editor.MoveToEnd()
	s.editor, _ = s.editor.Update(nil) // scrolls to the cursor
	s.menu = nil
}

// show puts entry i of the history into the editor; the one after the last is what was typed.
func (s *state) show(i int) {
	n := len(s.history.entries)
	if i < 0 || i > n {
		return
	}
	if s.recall == n {
		s.draft = s.editor.Value()
	}
	if s.recall = i; i == n {
		s.setValue(s.draft)
	} else {
		s.setValue(s.history.entries[i])
	}
}

// suggest fills the menu for the word before the cursor.
func (s *state) suggest() {
	s.menu, s.picked = nil, 0
	word := s.word()
	if s.complete != nil && word != "" {
		s.menu = s.complete(word)
	}
}

// word returns the word before the cursor if it can be completed: a command at the beginning, or one
// that begins with @.
func (s *state) word() string {
	lines := strings.Split(s.editor.Value(), "\n")
	row, col := s.editor.Line(), s.editor.Column()
	if row >= len(lines) {
		return ""
	}
	before := string([]rune(lines[row])[:min(col, len([]rune(lines[row])))])
	word := before[strings.LastIndexAny(before, " \t")+1:]
	if strings.HasPrefix(word, "@") || row == 0 && word == before && strings.HasPrefix(word, "/") {
		return word
	}
	return ""
}

// completeWord replaces the word before the cursor by what all candidates begin with, or else by the
// picked one.
func (s *state) completeWord() {
	if s.menu == nil {
		s.suggest()
	}
	word := s.word()
	if len(s.menu) == 0 || word == "" {
		return
	}
	to := s.menu[0].Text
	for _, c := range s.menu[1:] {
		to = commonPrefix(to, c.Text)
	}
	if len(to) <= len(word) {
		to = s.menu[s.picked].Text
	}
	if rest, ok := strings.CutPrefix(to, word); ok {
		s.editor.InsertString(rest)
	}
	if s.suggest(); len(s.menu) == 1 && s.menu[0].Text == to {
		s.menu = nil
	}
}

func commonPrefix(a, b string) string {
	n := 0
	for i, r := range a {
		if !strings.HasPrefix(b[min(i, len(b)):], string(r)) {
			break
		}
		n = i + len(string(r))
	}
	return a[:n]
}

// inMenu returns the candidates that are shown, and which of them is picked.
func (s *state) inMenu() (shown []Candidate, picked int) {
	from := max(0, min(s.picked-maxMenu/2, len(s.menu)-maxMenu))
	shown = s.menu[from:min(len(s.menu), from+maxMenu)]
	return slices.Clip(shown), s.picked - from
}
