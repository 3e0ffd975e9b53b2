package agent

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// defects are known defects of agent loops, found in
// a widely used implementation, each with the tests that would detect it
// or, if there can be no test, the reason.
var defects = []struct{ what, tests, why string }{
	{what: "1 a run that the consumer leaves in the middle leaves a call without a result", tests: "agent.TestBreakAnywhere agent.TestChaos"},
	{what: "2 goroutines continue after the consumer has stopped", tests: "agent.TestBreakAnywhere agent.TestInterrupts agent.TestBackgroundEndsWithTheRun"},
	{what: "3 an answer that was emitted is not saved", tests: "agent.TestBreakAnywhere agent.TestCrashAnywhere"},
	{what: "4 an incomplete call or invalid arguments are saved and sent again", tests: "agent.TestInterrupts agent.TestBadCallsBecomeResults model/openai.TestRequests"},
	{what: "5 a result for a call that was never emitted", tests: "agent.TestChaos agent.TestInterrupts"},
	{what: "6 an error ends a run without an End event", tests: "agent.TestOddAnswers agent.TestLimitAndAbort"},
	{what: "7 a tool of the wrong type is a success, then a crash", tests: "tool.TestTypesThatCannotBe"},
	{what: "8 one malformed schema kills every run", tests: "tool.TestOddSchemas mcpclient.TestToolLists"},
	{what: "9 two calls with the same id", tests: "agent.TestCallIDsAndInterleaving model/openai.TestIDsAreUniqueInTheConversation"},
	{what: "10 interleaved calls are mixed up", tests: "agent.TestCallIDsAndInterleaving model/openai.TestAnswers"},
	{what: "11 ids in events are not those of the stored blocks", tests: "agent.TestEventsMatchHistory"},
	{what: "12 events change after they were yielded", tests: "agent.TestToolRound agent.TestConfirm"},
	{what: "13 results are in the order in which calls ended", tests: "agent.TestParallelIsBoundedAndInOrder"},
	{what: "14 an image in a result separates the results", tests: "model/openai.TestRequests"},
	{what: "15 a new message hides waiting calls", tests: "agent.TestConfirm"},
	{what: "16 after a crash calls run again, under another run", tests: "agent.TestCrashAnywhere agent.TestCallsThatHadBegun agent/session.TestKill agent/session.TestKillInACall"},
	{what: "17 two runs mix in one conversation", tests: "agent.TestBusyAndSingleUse"},
	{what: "18 compaction removes the newest question", tests: "agent.TestCompaction agent.TestCompactionWithinATurn"},
	{what: "19 the summary prompt has a placeholder", tests: "agent.TestCompaction agent.TestSummaryPromptNamesTheFields"},
	{what: "20 a conversation that is too long cannot continue", tests: "agent.TestCompaction agent.TestSummaryInASmallerWindow"},
	{what: "21 results from outside have no size limit", tests: "agent.TestExternal"},
	{what: "22 of two questions only the last is emitted", tests: "agent.TestBatchAsksOnceForWhatOneRuleCovers cmd/kitbag.TestDemo"},
	{what: "23 an empty answer is accepted", tests: "agent.TestOddAnswers"},
	{what: "24 a run ends at a limit without a final answer", tests: "agent.TestLimits"},
	{what: "25 reminders stay in the history", tests: "agent.TestReplyAs"},
	{what: "26 the judged call differs from the one that runs", tests: "agent.TestMiddlewareJudges tool.TestValidJSONIsNeverChanged"},
	{what: "27 an answer may change the call unchecked", tests: "agent.TestApprovedCallIsStillDenied agent.TestConfirmRefusesNonsense agent.TestMiddlewareJudges agent.TestAnotherDangerIsAskedAbout"},
	{what: "28 an answer may bring rules for any tool", tests: "agent.TestConfirmRefusesNonsense agent.TestConfirm"},
	{what: "29 a rule with an empty pattern matches everything", tests: "permission.TestPolicyCheck permission.TestSettingsErrors"},
	{what: "30 the mode explore denies planning tools", tests: "toolkit.TestPermission builtin.TestTaskPermission"},
	{what: "31 questions never expire; an answer for another run counts", tests: "agent.TestQuestionsExpire agent.TestSlowApprove agent.TestSealRefusesEveryFlippedByte"},
	{what: "32 servers are trusted, and their tool names collide", tests: "mcpclient.TestHintsAreClaims mcpclient.TestNamesAreDistinctLegalAndStable"},
	{what: "33 a tool of a closed group with the same name is used", tests: "toolkit.TestWhatWasShownRuns"},
	{what: "34 opening a group depends on the order of calls", tests: "agent.TestLateCallsDoNotDependOnOrder"},
	{what: "35 a call waits without a visible question", tests: "agent.TestBatchAsksOnceForWhatOneRuleCovers"},
	{what: "36 no timeouts, no limit on parallel calls", tests: "agent.TestToolTimeout agent.TestParallelIsBoundedAndInOrder tool.TestCancelEndsToolsThatIgnoreIt"},
	{what: "36b the model does not learn of edits; group texts are not escaped", tests: "agent.TestConfirm skill.TestFragmentCannotBeForged"},
	{what: "37 servers are listed at every step", tests: "toolkit.TestSources mcpclient.TestLazyAndClosed"},
	{what: "38 a server that fails temporarily loses its tools", tests: "toolkit.TestHangingSource mcpclient.TestKilledWhileIdle"},
	{what: "39 opening a group reorders the list of tools", tests: "toolkit.TestAppendOnly"},
	{what: "40 instructions are lost in compaction; the answer to opening a group names no tools", tests: "agent.TestCompaction toolkit.TestResetTools"},
	{what: "41 images are removed one by one", tests: "agent.TestImagesAreReplaced"},
	{what: "42 the same history is sent with different bytes", tests: "model/openai.TestBodiesStayAsTheyAre model/openai.TestStepEncodesOnlyWhatIsNew"},
	{what: "43 no cache markers", why: "OpenAI-compatible endpoints cache by prefix without markers; markers of a vendor can be set in Request.Extra"},
	{what: "44 the request for a summary has another tool list", tests: "agent.TestCompaction agent.TestSummaries"},
	{what: "45 compaction counts all messages for each cut", why: "estimates are cached during a run; a benchmark measures that, not a test"},
	{what: "46 estimates are never corrected", tests: "agent/internal/window.TestRatio"},
	{what: "47 retries with a fixed wait, for all errors", tests: "model/middleware.TestRetry model/middleware.TestRetrySpread model/openai.TestRetries"},
	{what: "48 a tool choice is forced from the start", tests: "agent.TestReplyAs"},
	{what: "49 usage has a different meaning for each provider", tests: "model/openai.TestAnswers agent.TestSubAgent"},
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
