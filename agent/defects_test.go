package agent

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// defects are the known ways in which a loop like this one goes wrong, found in
// a widely used implementation, each with the tests that would fail if we had
// it. A row without tests says why there can be none.
var defects = []struct{ what, tests, why string }{
	{what: "1 a run that is left in the middle leaves a call without a result", tests: "agent.TestBreakAnywhere agent.TestChaos"},
	{what: "2 workers go on after a run was left", tests: "agent.TestBreakAnywhere agent.TestInterrupts agent.TestBackgroundEndsWithTheRun"},
	{what: "3 an answer that was shown is not stored", tests: "agent.TestBreakAnywhere agent.TestCrashAnywhere"},
	{what: "4 half a call, or invalid arguments, are stored and sent again", tests: "agent.TestInterrupts agent.TestBadCallsBecomeResults model/openai.TestRequests"},
	{what: "5 a result for a call that nobody was told of", tests: "agent.TestChaos agent.TestInterrupts"},
	{what: "6 an error ends a run without an end", tests: "agent.TestOddAnswers agent.TestLimitAndAbort"},
	{what: "7 a tool of the wrong type is a success, then a crash", tests: "tool.TestTypesThatCannotBe"},
	{what: "8 one malformed schema kills every run", tests: "tool.TestOddSchemas mcpclient.TestToolLists"},
	{what: "9 two calls of one id", tests: "agent.TestCallIDsAndInterleaving model/openai.TestIDsAreUniqueInTheConversation"},
	{what: "10 interleaved calls come apart", tests: "agent.TestCallIDsAndInterleaving model/openai.TestAnswers"},
	{what: "11 ids in events are not those of the stored blocks", tests: "agent.TestEventsMatchHistory"},
	{what: "12 events change after they came", tests: "agent.TestToolRound agent.TestConfirm"},
	{what: "13 results stand in the order in which they came", tests: "agent.TestParallelIsBoundedAndInOrder"},
	{what: "14 a picture in a result breaks up the results", tests: "model/openai.TestRequests"},
	{what: "15 new words hide the calls that wait", tests: "agent.TestConfirm"},
	{what: "16 after a crash calls run again, under another run", tests: "agent.TestCrashAnywhere agent.TestCallsThatHadBegun agent/session.TestKill agent/session.TestKillInACall"},
	{what: "17 two runs mix in one conversation", tests: "agent.TestBusyAndSingleUse"},
	{what: "18 compaction takes the newest question", tests: "agent.TestCompaction agent.TestCompactionWithinATurn"},
	{what: "19 the summary prompt has a hole", tests: "agent.TestCompaction agent.TestSummaryPromptNamesTheFields"},
	{what: "20 a conversation that is too long is stuck", tests: "agent.TestCompaction agent.TestSummaryWhereTheServerKnowsTheWindow"},
	{what: "21 results from outside have no size limit", tests: "agent.TestExternal"},
	{what: "22 of two questions only the last is asked", tests: "agent.TestBatchAsksOnceForWhatOneRuleCovers cmd/kitbag.TestDemo"},
	{what: "23 an empty answer is an answer", tests: "agent.TestOddAnswers"},
	{what: "24 a limit ends without a word", tests: "agent.TestLimits"},
	{what: "25 reminders stay in the history", tests: "agent.TestReplyAs"},
	{what: "26 what is judged is not what runs", tests: "agent.TestMiddlewareJudges tool.TestValidJSONIsNeverChanged"},
	{what: "27 an answer may change the call unchecked", tests: "agent.TestApprovedCallIsStillDenied agent.TestConfirmRefusesNonsense agent.TestMiddlewareJudges agent.TestAnotherDangerIsAskedAbout"},
	{what: "28 rules that come with an answer may be about anything", tests: "agent.TestConfirmRefusesNonsense agent.TestConfirm"},
	{what: "29 a rule with an empty pattern matches everything", tests: "permission.TestPolicyCheck permission.TestSettingsErrors"},
	{what: "30 exploring denies the tools for planning", tests: "toolkit.TestPermission builtin.TestTaskPermission"},
	{what: "31 questions stand for ever; an answer of another run counts", tests: "agent.TestQuestionsExpire agent.TestSlowApprove agent.TestSealRefusesEveryFlippedByte"},
	{what: "32 servers are believed, and their names collide", tests: "mcpclient.TestHintsAreClaims mcpclient.TestNamesAreDistinctLegalAndStable"},
	{what: "33 a closed group's tool of the same name decides", tests: "toolkit.TestWhatWasShownRuns"},
	{what: "34 opening a group depends on the order of calls", tests: "agent.TestLateCallsDoNotDependOnOrder"},
	{what: "35 calls wait that nobody sees", tests: "agent.TestBatchAsksOnceForWhatOneRuleCovers"},
	{what: "36 no time-outs, no bound on parallel calls", tests: "agent.TestToolTimeout agent.TestParallelIsBoundedAndInOrder tool.TestCancelEndsToolsThatIgnoreIt"},
	{what: "36b the model is not told of edits; group texts are not escaped", tests: "agent.TestConfirm skill.TestFragmentCannotBeForged"},
	{what: "37 servers are listed at every step", tests: "toolkit.TestSources mcpclient.TestLazyAndClosed"},
	{what: "38 a server that falters loses its tools", tests: "toolkit.TestHangingSource mcpclient.TestKilledWhileIdle"},
	{what: "39 opening a group moves the list", tests: "toolkit.TestAppendOnly"},
	{what: "40 instructions are lost in compaction; opening names no tools", tests: "agent.TestCompaction toolkit.TestResetTools"},
	{what: "41 pictures are taken out one by one", tests: "agent.TestPicturesGiveWay"},
	{what: "42 the same history is sent in other bytes", tests: "model/openai.TestBodiesStayAsTheyAre model/openai.TestStepEncodesOnlyWhatIsNew"},
	{what: "43 no cache markers", why: "endpoints of the OpenAI kind cache by prefix and know no markers; a vendor's own go through Request.Extra"},
	{what: "44 a summary is asked for with another tool list", tests: "agent.TestCompaction agent.TestSummaries"},
	{what: "45 splitting counts everything for each cut", why: "a message's estimate is kept while the run lasts; what that saves is a benchmark's business, not a test's"},
	{what: "46 estimates are never corrected", tests: "agent/internal/window.TestRatio"},
	{what: "47 retries with a fixed wait, of everything", tests: "model/middleware.TestRetry model/middleware.TestRetrySpread model/openai.TestRetries"},
	{what: "48 a tool choice is forced from the start", tests: "agent.TestReplyAs"},
	{what: "49 usage means something else for each provider", tests: "model/openai.TestAnswers agent.TestSubAgent"},
	{what: "50 the state holds the files that were read", tests: "builtin.TestFileCacheCases"},
}

// TestDefectsHaveTests checks that the tests of the table exist.
func TestDefectsHaveTests(t *testing.T) {
	if len(defects) != 51 {
		t.Errorf("%d rows", len(defects))
	}
	for _, d := range defects {
		if (d.tests == "") == (d.why == "") {
			t.Errorf("%s: needs either tests or a reason", d.what)
		}
		for _, name := range strings.Fields(d.tests) {
			pkg, test, _ := strings.Cut(name, ".")
			if !testExists(t, filepath.Join("..", pkg), test) {
				t.Errorf("%s: there is no %s", d.what, name)
			}
		}
	}
}

func testExists(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	decl := regexp.MustCompile(`(?m)^func ` + test + `\(t \*testing\.T\)`)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if decl.Match(data) {
			return true
		}
	}
	return false
}
