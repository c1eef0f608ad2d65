package translate

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An exception is a PolicyException of policies.kyverno.io.
type exception struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		PolicyRefs []struct {
			Name string `json:"name"`
			Kind string `json:"kind"`
		} `json:"policyRefs"`
		MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions"`
		Images          []string                                 `json:"images"`
		AllowedValues   []string                                 `json:"allowedValues"`
		ReportResult    string                                   `json:"reportResult"`
		ExpiresAt       string                                   `json:"expiresAt"`
		EvaluationMode  string                                   `json:"evaluationMode"`
		Properties      map[string]string                        `json:"properties"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`

	head *head
	used []bool // by index of policyRefs: whether the reference names a document
}

func (t *translator) exception(h *head) {
	e := &exception{head: h}
	if !t.decode(h, e) || t.faulty(h) { // what is unknown may narrow it
		return
	}
	if len(e.Spec.PolicyRefs) == 0 {
		t.refuse(h, "spec.policyRefs", "got none, want at least one policy")
		return
	}
	e.used = make([]bool, len(e.Spec.PolicyRefs))
	if at := e.Spec.ExpiresAt; at != "" {
		end, err := time.Parse(time.RFC3339, at)
		switch {
		case err != nil:
			t.refuse(h, "spec.expiresAt", "got %q, want a time such as 2027-01-31T00:00:00Z", at)
			return
		case t.Now.IsZero():
		case !end.After(t.Now):
			t.note(h, "spec.expiresAt", "the exception ended at %s, so it is left out", at)
			for i := range e.used {
				e.used[i] = true
			}
			return
		default:
			if t.Ends.IsZero() || end.Before(t.Ends) {
				t.Ends = end
			}
			t.note(h, "spec.expiresAt", "the translation does not end at %s: translate again then", at)
		}
	}
	t.exceptions = append(t.exceptions, e)
}

// unused adds a note for each reference of an exception to a policy that is not among the documents.
func (t *translator) unused() {
	for _, e := range t.exceptions {
		for i, used := range e.used {
			if !used {
				ref := e.Spec.PolicyRefs[i]
				t.note(e.head, "spec.policyRefs", "%s %q is not among the documents, so nothing is excepted from it: give it together with the exception", ref.Kind, ref.Name)
			}
		}
	}
}

// condition returns the condition under which the exception applies.
func (e *exception) condition() string {
	all := make([]string, len(e.Spec.MatchConditions))
	for i, c := range e.Spec.MatchConditions {
		all[i] = c.Expression
	}
	if len(all) == 0 {
		return "true"
	}
	return joined(all, " && ")
}

var exceptionsUse = regexp.MustCompile(`(^|[^.\w])exceptions\.(allowedImages|allowedValues)\b`)

// except adds the exceptions of a policy. An exception with images or allowed values adds to the lists
// that the policy reads. Any other exception becomes a match condition.
func (t *translator) except(h *head, spec *celSpec) {
	var full []admissionregistrationv1.MatchCondition
	images, values := []string{literals(nil)}, []string{literals(nil)}
	for _, e := range t.exceptions {
		for i, ref := range e.Spec.PolicyRefs {
			if ref.Name != h.Metadata.Name || ref.Kind != h.Kind {
				continue
			}
			e.used[i] = true
			condition := e.condition()
			if len(e.Spec.Images)+len(e.Spec.AllowedValues) == 0 {
				full = append(full, admissionregistrationv1.MatchCondition{Name: "except-" + e.Metadata.Name, Expression: "!(" + condition + ")"})
				continue
			}
			if len(e.Spec.Images) > 0 {
				images = append(images, "(("+condition+") ? "+literals(e.Spec.Images)+" : "+literals(nil)+")")
			}
			if len(e.Spec.AllowedValues) > 0 {
				values = append(values, "(("+condition+") ? "+literals(e.Spec.AllowedValues)+" : "+literals(nil)+")")
			}
		}
	}
	spec.MatchConditions = append(full, spec.MatchConditions...)
	lists := "{'allowedImages': " + strings.Join(images, " + ") + ", 'allowedValues': " + strings.Join(values, " + ") + "}"
	reads := false
	inConditions := len(spec.MatchConditions)
	eachExpression(spec, func(_ string, expression *string) {
		inConditions--
		with := "${1}variables.exceptions.${2}"
		if inConditions >= 0 { // match conditions have no variables
			with = "${1}" + strings.ReplaceAll(lists, "$", "$$") + ".${2}"
		}
		*expression = stretches(*expression, func(code string) string {
			if !exceptionsUse.MatchString(code) {
				return code
			}
			reads = reads || inConditions < 0
			return exceptionsUse.ReplaceAllString(code, with)
		})
	})
	if reads {
		spec.Variables = append([]admissionregistrationv1.Variable{{Name: "exceptions", Expression: lists}}, spec.Variables...)
	}
}
