// Package compare compares two answers to a review: the decision, messages, warnings, and the stored object.
package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/recording"
)

// textBytesMax bounds each text of a Difference.
const textBytesMax = 8 << 10

// An Outcome is the answer to a review.
type Outcome struct {
	Decision        recording.Decision
	Plugin          string // that denied or failed, "" if it is not known
	Code            int32
	Reason, Message string
	Warnings        []string
	Patch           []byte
	PatchedBy       []string
	Annotated       []string // the keys of the audit annotations of a recorded answer
	IsPart          bool     // only the decision and the message of a denial are known
	HasNoPatch      bool     // the patch was left out
}

// Recorded returns the Outcome of a recorded answer. isPart says that only the decision and the message of
// a denial are known.
func Recorded(a *recording.Answer, isPart bool) (*Outcome, error) {
	o := &Outcome{
		Decision: a.Decision, Plugin: a.Plugin, Message: a.Message, IsPart: isPart,
		HasNoPatch: len(a.LeftOut) > 0,
	}
	if isPart || a.Decision == recording.Failed {
		return o, nil
	}
	var review struct {
		Response *struct {
			Allowed bool `json:"allowed"`
			Status  struct {
				Code    int32  `json:"code"`
				Reason  string `json:"reason"`
				Message string `json:"message"`
			} `json:"status"`
			Warnings    []string          `json:"warnings"`
			Patch       []byte            `json:"patch"`
			Annotations map[string]string `json:"auditAnnotations"`
		} `json:"response"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(a.Review, &review); err != nil || review.Response == nil {
		return nil, fmt.Errorf("cannot read the recorded answer: want an AdmissionReview with a response; %w", err)
	}
	response := review.Response
	if response.Allowed != (a.Decision == recording.Allowed) {
		return nil, fmt.Errorf("the recorded answer contradicts itself: got allowed %v and the decision %s", response.Allowed, a.Decision)
	}
	o.Warnings, o.Patch = response.Warnings, response.Patch
	o.Code, o.Reason, o.Message = response.Status.Code, response.Status.Reason, response.Status.Message
	for key, value := range response.Annotations {
		o.Annotated = append(o.Annotated, key)
		if value == "patched" { // see admission.Chain.Review
			o.PatchedBy = append(o.PatchedBy, key)
		}
	}
	return o, nil
}

func (o *Outcome) String() string {
	switch o.Decision {
	case recording.Denied:
		by := ""
		if o.Plugin != "" {
			by = " by " + o.Plugin
		}
		return fmt.Sprintf("denied%s: %s", by, strings.TrimPrefix(o.Message, o.Plugin+": "))
	case recording.Failed:
		return "failed: " + o.Message
	}
	return "allowed"
}

// Changes of an answer whose decision stays the same.
const (
	ChangedMessage  = "message"
	ChangedWarnings = "warnings"
	ChangedPatch    = "patch"
)

// A Difference is one difference between two answers.
type Difference struct {
	Change string // "allowed to denied", or one of the constants
	Plugin string // the cause of the newer answer or, if the newer answer allows, of the older one
	About  string // both answers
	// IsWorse says that the older answer allows, and the newer one does not.
	IsWorse bool
}

// Outcomes returns the differences between two answers. stored returns the JSON Patch from the object that
// would have been stored to the one that would be now, nil if they are equal.
func Outcomes(before, after *Outcome, stored func() ([]byte, error)) (all []Difference, err error) {
	both := func(a, b string) string {
		return codec.TruncateString(a, textBytesMax) + "\nnow " + codec.TruncateString(b, textBytesMax)
	}
	if before.Decision != after.Decision {
		plugin := after.Plugin
		if after.Decision == recording.Allowed {
			plugin = before.Plugin
		}
		return []Difference{{
			fmt.Sprintf("%s to %s", before.Decision, after.Decision), plugin, both(before.String(), after.String()),
			before.Decision == recording.Allowed,
		}}, nil
	}
	if before.Decision != recording.Allowed {
		same := before.Message == after.Message
		if !before.IsPart {
			same = same && before.Plugin == after.Plugin && before.Code == after.Code && before.Reason == after.Reason
		}
		if !same {
			all = append(all, Difference{Change: ChangedMessage, Plugin: after.Plugin, About: both(before.String(), after.String())})
		}
	}
	if before.IsPart {
		return all, nil
	}
	if !slices.Equal(before.Warnings, after.Warnings) {
		from, to := strings.Join(before.Warnings, "\n"), strings.Join(after.Warnings, "\n")
		plugin, _, found := strings.Cut(to+from, ": ")
		if !found || strings.ContainsAny(plugin, " \n") {
			plugin = ""
		}
		all = append(all, Difference{
			Change: ChangedWarnings, Plugin: plugin, About: both(fmt.Sprintf("warnings %q", from), fmt.Sprintf("%q", to)),
		})
	}
	if before.HasNoPatch || before.Decision != recording.Allowed {
		return all, nil
	}
	patch, err := stored()
	if err != nil || patch == nil {
		return all, err
	}
	return append(all, Difference{
		Change: ChangedPatch, Plugin: strings.Join(after.PatchedBy, ", "),
		About: "the stored object changes by " + codec.TruncateString(string(patch), textBytesMax),
	}), nil
}

// Patches applies both patches to the object of a review. It returns the JSON Patch from the first
// result to the second, nil if they are equal.
func Patches(body, before, after []byte) ([]byte, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	object := objectOf(body)
	a, err := patched(object, before)
	if err != nil {
		return nil, fmt.Errorf("the recorded patch cannot be applied: %w", err)
	}
	b, err := patched(object, after)
	if err != nil {
		return nil, fmt.Errorf("the patch cannot be applied: %w", err)
	}
	return Stored(a, b)
}

// generatedName finds the names of volumes that the plugin ServiceAccount generates.
var generatedName = regexp.MustCompile(`"kube-api-access-[a-z0-9]{5}"`)

// Stored returns the JSON Patch from one object to another, nil if they are equal but for names that are
// generated anew for each review.
func Stored(a, b []byte) ([]byte, error) {
	same := []byte(`"kube-api-access-xxxxx"`)
	return diff.Documents(generatedName.ReplaceAllLiteral(a, same), generatedName.ReplaceAllLiteral(b, same))
}

func patched(object, patch []byte) ([]byte, error) {
	if len(patch) == 0 {
		return object, nil
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	return decoded.Apply(object)
}

// policyIn finds the policy in a message of the plugins that evaluate policies.
var policyIn = regexp.MustCompile(`(?:Validating|Mutating)AdmissionPolicy '([^']+)'`)

// PolicyOf returns the policy that the newer answer names; if it names none, that of the older answer.
func PolicyOf(before, after *Outcome) string {
	for _, o := range [...]*Outcome{after, before} {
		for _, text := range append([]string{o.Message}, o.Warnings...) {
			if match := policyIn.FindStringSubmatch(text); match != nil {
				return match[1]
			}
		}
	}
	return ""
}

// objectOf returns the object of an AdmissionReview.
func objectOf(body []byte) []byte {
	var review struct {
		Request struct {
			Object json.RawMessage `json:"object"`
		} `json:"request"`
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(body, &review) // it was read before
	return review.Request.Object
}
