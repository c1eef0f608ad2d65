package suite

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// PolicyExpect is the expected outcome of a policy, or of policies of which some select the object.
type PolicyExpect struct {
	Names []string `json:"names"`
	// Outcomes are those of which each policy that selects the object has one. If none selects it, the outcome
	// is "unmatched".
	Outcomes []string `json:"outcomes,omitempty"`
	// Messages are compared with those of the validations that are false or fail. The action of the binding
	// does not matter.
	Messages []MessageExpect `json:"messages,omitempty"`
}

// MessageExpect is how many messages have a text.
type MessageExpect struct {
	Text  *Text `json:"text,omitempty"`  // by default any
	Count *int  `json:"count,omitempty"` // by default at least one
}

// Outcomes of policies that --explain of fastadmit review does not name.
const (
	outcomeSkipped   = "skipped"   // a match condition is false
	outcomeUnmatched = "unmatched" // the rules or selectors of the policy or its binding do not select the object
)

// reviewEnded is how admission explains that a plugin is not asked after a denial.
const reviewEnded = "the review ended before"

// outcomes are those that a policy can have. "allowed" is with or without a change. "errored" is an expression that
// fails, whatever failurePolicy makes of it.
var outcomes = []string{
	admission.OutcomeAllowed.String(), admission.OutcomePatched.String(), admission.OutcomeDenied.String(), admission.OutcomeWarned.String(),
	admission.OutcomeAudited.String(), admission.OutcomeErrored.String(), outcomeSkipped, outcomeUnmatched,
}

// check calls refuse for each field that is wrong.
func (e *PolicyExpect) check(refuse func(field, format string, args ...any)) {
	if len(e.Names) == 0 || slices.Contains(e.Names, "") {
		refuse("names", "got %q, want names of policies", e.Names)
	}
	if len(e.Outcomes)+len(e.Messages) == 0 {
		refuse("outcomes", "got none, want at least one of %s, or messages", strings.Join(outcomes, ", "))
	}
	for i, outcome := range e.Outcomes {
		if !slices.Contains(outcomes, outcome) {
			refuse(index("outcomes", i), "got %q, want one of %s", outcome, strings.Join(outcomes, ", "))
		}
	}
	for i, m := range e.Messages {
		if m.Count != nil && *m.Count < 0 {
			refuse(index("messages", i)+".count", "got %d, want at least 0", *m.Count)
		}
	}
}

// compare returns how the explanation of a result differs.
func (e *PolicyExpect) compare(result *report.Result) (differences []string) {
	name := "policies: " + strings.Join(e.Names, ", ")
	known, isLeftOut, selected := false, false, make(map[string]bool)
	var messages []string
	want := strings.Join(e.Outcomes, " or ")
	for _, plugin := range result.Explanation {
		// Plugins for policies do not get all objects and operations.
		isLeftOut = isLeftOut || !plugin.Asked && strings.HasSuffix(plugin.Plugin, "AdmissionPolicy") && !strings.HasPrefix(plugin.Why, reviewEnded)
		for i := range plugin.Policies {
			p := &plugin.Policies[i]
			if !slices.Contains(e.Names, p.Policy) {
				continue
			}
			known, messages = true, append(messages, p.Messages...)
			outcome := outcomeOf(plugin, p)
			// A mutating policy is asked again if the object has changed. It may not select its own result.
			isAgain := selected[p.Policy] && (p.Pass > 1 || plugin.Round > 1)
			if outcome == outcomeUnmatched || outcome == outcomeSkipped && isAgain {
				continue
			}
			selected[p.Policy] = true
			if len(e.Outcomes) > 0 && !e.expects(outcome) {
				differences = append(differences, fmt.Sprintf("%s:\n- want %s\n+ got  %s by %s: %s", name, want, outcome, p.Policy, cmp.Or(p.Message, p.Why)))
			}
		}
	}
	switch {
	case !known && !isLeftOut:
		return []string{fmt.Sprintf("%s:\n- want %s\n+ got  none: no policy has such a name, or the review ended before", name, want)}
	case len(selected) == 0 && len(e.Outcomes) > 0 && !slices.Contains(e.Outcomes, outcomeUnmatched):
		differences = append(differences, fmt.Sprintf("%s:\n- want %s\n+ got  %s", name, want, outcomeUnmatched))
	}
	for i := range e.Messages {
		m := &e.Messages[i]
		found := 0
		for _, message := range messages {
			if m.Text == nil || m.Text.is(message) {
				found++
			}
		}
		if m.Count == nil && found == 0 || m.Count != nil && *m.Count != found {
			differences = append(differences, fmt.Sprintf("%s: messages:\n- want %s\n+ got  %d of %q", name, m, found, messages))
		}
	}
	return differences
}

func (e *PolicyExpect) expects(outcome string) bool {
	return slices.Contains(e.Outcomes, outcome) ||
		outcome == admission.OutcomePatched.String() && slices.Contains(e.Outcomes, admission.OutcomeAllowed.String())
}

// String says what is wanted.
func (m *MessageExpect) String() string {
	count, text := "at least one", ""
	if m.Count != nil {
		count = fmt.Sprint(*m.Count)
	}
	if m.Text != nil {
		text = " that is " + m.Text.String()
	}
	return count + text
}

// outcomeOf returns the outcome of a policy that a plugin evaluates.
func outcomeOf(plugin *admission.Explanation, p *admission.PolicyExplanation) string {
	const conditions = "matchConditions["
	switch {
	case p.Outcome == "" && strings.HasPrefix(p.Why, conditions) && strings.HasSuffix(p.Why, " is false"):
		return outcomeSkipped
	case p.Outcome == "" && strings.HasPrefix(p.Why, conditions): // it fails, and failurePolicy is Ignore
		return admission.OutcomeErrored.String()
	case p.Outcome == "":
		return outcomeUnmatched
	case p.Outcome == admission.OutcomeDenied.String() && plugin.Phase == admission.Mutate.String():
		return admission.OutcomeErrored.String() // mutations do not deny otherwise
	case len(p.Messages) > 0 && isError(p.Messages[0]):
		return admission.OutcomeErrored.String()
	}
	return p.Outcome
}

// compareWhole returns how the stored object differs from WholeObject.
func (c *Case) compareWhole(result *report.Result) []string {
	if !c.Expect.WholeObject.isSet() {
		return nil
	}
	var got any
	_ = kjson.UnmarshalCaseSensitivePreserveInts(result.After, &got) // we wrote it
	for i := range c.whole {
		item := &c.whole[i]
		if item.Kind != result.Kind || item.APIVersion != result.APIVersion || item.Metadata.Name != result.Name ||
			item.Metadata.Namespace != "" && item.Metadata.Namespace != result.Namespace {
			continue
		}
		if difference := differenceOf(item.JSON, got); difference != "" {
			return []string{difference}
		}
		return nil
	}
	from := cmp.Or(c.Expect.WholeObject.path, "wholeObject")
	return []string{fmt.Sprintf("object:\n- want %s %s\n+ got  none of this kind, namespace and name in %s", result.Kind, result.Name, from)}
}

// differenceOf returns how an object differs from a text, apart from nulls, empty maps and lists, and a default namespace.
func differenceOf(text []byte, got any) string {
	var want any
	_ = kjson.UnmarshalCaseSensitivePreserveInts(text, &want) // it was decoded before
	want, got = withoutEmpty(want), withoutEmpty(got)
	sameNamespace(want, got)
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return "object:\n" + unified(asYAML(want), asYAML(got))
}
