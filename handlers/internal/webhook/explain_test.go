package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// explained returns what a chain says about its webhooks for a review, a line for each, and requires that it decides as
// it does without explaining.
func explained(t *testing.T, chain *admission.Chain, phase admission.Phase, body []byte) (lines []string) {
	t.Helper()
	want := ask(t, chain, phase, body)
	var all []*admission.Explanation
	explaining := chain.Select(func(*admission.Plugin, *admission.Settings) bool { return true })
	explaining.Explain = func(x *admission.Explanation) { all = append(all, x) }
	got := ask(t, explaining, phase, body)
	if got.message != want.message || got.patch != want.patch || got.code != want.code || !slices.Equal(got.warnings, want.warnings) {
		t.Errorf("got %+v, want the decision without explaining, %+v", got, want)
	}
	for _, x := range all {
		for _, c := range x.Changes {
			lines = append(lines, fmt.Sprintf("%s %s by %s", c.Operation, c.Path, c.Webhook))
		}
		for _, w := range x.Webhooks {
			line := fmt.Sprintf("%s of %s, pass %d: %t: %s: %s", w.Webhook, w.Configuration, w.Pass, w.Asked, w.Why,
				strings.TrimSpace(w.Outcome+" "+w.Message))
			for _, e := range w.Expressions {
				line += fmt.Sprintf(" [%s %s]", e.Field, e.Value)
			}
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func compareLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const (
	selectsPods = "its rule * of */* */* selects CREATE of v1 pods name"
	onlyOdd     = `[{"operations":["DELETE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"]}]`
)

// TestExplain explains validating webhooks: those that are left out, allow, deny, fail, and fail without consequence.
func TestExplain(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		switch r.URL.Path {
		case "/deny":
			message, _ := json.Marshal("no\x1b[31m") // a text of the webhook
			answer(w, a.Request.UID, `"allowed":false,"status":{"message":`+string(message)+`}`)
		case "/fail":
			http.Error(w, "broken", http.StatusBadGateway)
		default:
			answer(w, a.Request.UID, `"allowed":true`)
		}
	})
	condition := func(expression string) string {
		return fmt.Sprintf(`"matchConditions":[{"name":"named","expression":%q}]`, expression)
	}
	chain := b.chain(admission.Validate, upstreamConfig,
		hook{name: "rule.example.com", path: "/", rules: onlyOdd},
		hook{name: "selector.example.com", path: "/", more: `"objectSelector":{"matchLabels":{"a":"b"}}`},
		hook{name: "condition.example.com", path: "/", more: condition("request.name == 'other'")},
		hook{name: "allows.example.com", path: "/", more: condition("request.name == 'name'")},
		hook{name: "denies.example.com", path: "/deny"},
		hook{name: "ignored.example.com", path: "/fail", more: `"failurePolicy":"Ignore"`},
		hook{name: "fails.example.com", path: "/fail"},
	)
	const failed = `failed calling webhook "%s.example.com": failed to call webhook: an error on the server ("broken") has prevented the ` +
		`request from succeeding`
	compareLines(t, explained(t, chain, admission.Validate, pod),
		"rule.example.com of c, pass 1: false: none of its rules selects CREATE of v1 pods name; they are: DELETE of apps/v1 deployments:",
		"selector.example.com of c, pass 1: false: objectSelector a=b does not match: object has no a:",
		"condition.example.com of c, pass 1: false: matchConditions[0] named is false:  [matchConditions[0].expression false]",
		"allows.example.com of c, pass 1: true: "+selectsPods+": allowed [matchConditions[0].expression true]",
		"denies.example.com of c, pass 1: true: "+selectsPods+
			`: denied admission webhook "denies.example.com" denied the request: no`+"\x1b[31m",
		"ignored.example.com of c, pass 1: true: "+selectsPods+": errored "+fmt.Sprintf(failed, "ignored")+
			" (ignored, as its failurePolicy says)",
		"fails.example.com of c, pass 1: true: "+selectsPods+": errored "+fmt.Sprintf(failed, "fails"))
}

// TestExplainEnded has a match condition that denies: no webhook is called.
func TestExplainEnded(t *testing.T) {
	called := false
	b := newAllowing(t, &called)
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		chain := b.chain(phase, upstreamConfig,
			hook{name: "b.example.com", path: "/", more: `"matchConditions":[{"name":"c","expression":"object.none == 1"}]`},
			hook{name: "c.example.com", path: "/"})
		lines := explained(t, chain, phase, pod)
		const denied = "b.example.com of c, pass 1: true: matchConditions[0] c is error: no such key: none: denied pods "
		if len(lines) != 2 || !strings.HasPrefix(lines[0], denied) ||
			lines[1] != "c.example.com of c, pass 0: false: the review ended before it was called:" || called {
			t.Errorf("got\n%s", strings.Join(lines, "\n"))
		}
	}
	const exempt = "webhooks are not called for its resource"
	chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"})
	chain.Explain = func(x *admission.Explanation) {
		if x.Message != exempt || x.Webhooks != nil {
			t.Errorf("got %+v, want %s", x, exempt)
		}
	}
	const configurations = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	ask(t, chain, admission.Validate, admissiontest.Body(codec.Create, configurations, `{}`))
}

// TestExplainMutating explains which webhook changed what, and which ones are called again.
func TestExplainMutating(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		if r.URL.Path == "/b" {
			answer(w, a.Request.UID, patched(t, `[{"op":"add","path":"/metadata/labels","value":{"b":"c"}}]`))
			return
		}
		answer(w, a.Request.UID, `"allowed":true`)
	})
	chain := b.chain(admission.Mutate, upstreamConfig, hook{name: "a.example.com", path: "/a", more: `"reinvocationPolicy":"IfNeeded"`},
		hook{name: "b.example.com", path: "/b"})
	compareLines(t, explained(t, chain, admission.Mutate, pod),
		"add /metadata/labels by b.example.com",
		"a.example.com of c, pass 1: true: "+selectsPods+": allowed",
		"b.example.com of c, pass 1: true: "+selectsPods+": patched",
		"a.example.com of c, pass 2: true: "+selectsPods+": allowed")
}
