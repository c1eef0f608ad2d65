package replay

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

// textBytesMax bounds the texts of the example of a group.
const textBytesMax = 8 << 10

// An outcome is the answer to a review.
type outcome struct {
	decision        recording.Decision
	plugin          string // that denied or failed, "" if it is not known
	code            int32
	reason, message string
	warnings        []string
	patch           []byte
	patchedBy       []string
	isPart          bool // only the decision and the message of a denial are known
	hasNoPatch      bool // the patch was left out
}

// recorded returns the outcome of a recorded answer.
func recorded(r *record) (*outcome, error) {
	a := r.answer
	o := &outcome{
		decision: a.Decision, plugin: a.Plugin, message: a.Message, isPart: r.isPart,
		hasNoPatch: len(a.LeftOut) > 0,
	}
	if r.isPart || a.Decision == recording.Failed {
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
			Warnings []string `json:"warnings"`
			Patch    []byte   `json:"patch"`
		} `json:"response"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(a.Review, &review); err != nil || review.Response == nil {
		return nil, fmt.Errorf("cannot read the recorded answer: want an AdmissionReview with a response; %w", err)
	}
	response := review.Response
	if response.Allowed != (a.Decision == recording.Allowed) {
		return nil, fmt.Errorf("the recorded answer contradicts itself: got allowed %v and the decision %s", response.Allowed, a.Decision)
	}
	o.warnings, o.patch = response.Warnings, response.Patch
	o.code, o.reason, o.message = response.Status.Code, response.Status.Reason, response.Status.Message
	return o, nil
}

func (o *outcome) String() string {
	switch o.decision {
	case recording.Denied:
		by := ""
		if o.plugin != "" {
			by = " by " + o.plugin
		}
		return fmt.Sprintf("denied%s: %s", by, strings.TrimPrefix(o.message, o.plugin+": "))
	case recording.Failed:
		return "failed: " + o.message
	}
	return "allowed"
}

// Changes of an answer whose decision stays the same.
const (
	changedMessage  = "message"
	changedWarnings = "warnings"
	changedPatch    = "patch"
)

// A difference is one difference between two answers.
type difference struct {
	change string // "allowed to denied", or one of the constants
	plugin string // the cause of the newer answer or, if the newer answer allows, of the older one
	about  string // both answers
	// isWorse says that the older answer allows, and the newer one does not.
	isWorse bool
}

// compare returns the differences between two answers. stored returns the JSON Patch from the object that
// would have been stored to the one that would be now, nil if they are equal.
func compare(before, after *outcome, stored func() ([]byte, error)) (all []difference, err error) {
	both := func(a, b string) string {
		return codec.TruncateString(a, textBytesMax) + "\nnow " + codec.TruncateString(b, textBytesMax)
	}
	if before.decision != after.decision {
		plugin := after.plugin
		if after.decision == recording.Allowed {
			plugin = before.plugin
		}
		return []difference{{
			fmt.Sprintf("%s to %s", before.decision, after.decision), plugin, both(before.String(), after.String()),
			before.decision == recording.Allowed,
		}}, nil
	}
	if before.decision != recording.Allowed {
		same := before.message == after.message
		if !before.isPart {
			same = same && before.plugin == after.plugin && before.code == after.code && before.reason == after.reason
		}
		if !same {
			all = append(all, difference{change: changedMessage, plugin: after.plugin, about: both(before.String(), after.String())})
		}
	}
	if before.isPart {
		return all, nil
	}
	if !slices.Equal(before.warnings, after.warnings) {
		from, to := strings.Join(before.warnings, "\n"), strings.Join(after.warnings, "\n")
		plugin, _, found := strings.Cut(to+from, ": ")
		if !found || strings.ContainsAny(plugin, " \n") {
			plugin = ""
		}
		all = append(all, difference{
			change: changedWarnings, plugin: plugin, about: both(fmt.Sprintf("warnings %q", from), fmt.Sprintf("%q", to)),
		})
	}
	if before.hasNoPatch || before.decision != recording.Allowed {
		return all, nil
	}
	patch, err := stored()
	if err != nil || patch == nil {
		return all, err
	}
	return append(all, difference{
		change: changedPatch, plugin: strings.Join(after.patchedBy, ", "),
		about: "the stored object changes by " + codec.TruncateString(string(patch), textBytesMax),
	}), nil
}

// comparePatches applies both patches to the object of a review. It returns the JSON Patch from the first
// result to the second, nil if they are equal.
func comparePatches(body, before, after []byte) ([]byte, error) {
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
	return storedDifference(a, b)
}

// generatedName finds the names of volumes that the plugin ServiceAccount generates.
var generatedName = regexp.MustCompile(`"kube-api-access-[a-z0-9]{5}"`)

// storedDifference returns the JSON Patch from one object to another, nil if they are equal but for names that
// are generated anew for each review.
func storedDifference(a, b []byte) ([]byte, error) {
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

// policyOf returns the policy that the newer answer names; if it names none, that of the older answer.
func policyOf(before, after *outcome) string {
	for _, o := range [...]*outcome{after, before} {
		for _, text := range append([]string{o.message}, o.warnings...) {
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
