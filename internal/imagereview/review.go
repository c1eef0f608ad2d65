package imagereview

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/distribution/reference"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	apiVersion = "imagepolicy.k8s.io/v1alpha1"
	kind       = "ImageReview"

	// refusalsMax is how many images a reason names, and imageBytesMax how much of a
	// name: users read it in one line.
	refusalsMax   = 5
	imageBytesMax = 300

	// nameBytesMax is how long the name of an image may be: a repository has at most 255
	// characters with its registry, a tag 128 and a digest some 140. Longer ones take
	// seconds to parse.
	nameBytesMax = 1024

	// imagesMax is the number of images after which ctx is checked. Parsing one takes
	// microseconds.
	imagesMax = 256
)

// Answer is the answer to an ImageReview. It contains no views of the request. If Allowed
// is true, the other fields are empty.
type Answer struct {
	Allowed   bool
	Namespace string
	Reason    string // describes the refused images
	Rule      string // name of the rule that refused the first image, "" if the image name is invalid
}

// Review decides about an ImageReview in JSON. The error says that the ImageReview is
// invalid, or is that of ctx.
func (p *Policy) Review(ctx context.Context, body []byte) (Answer, error) {
	var o codec.Object
	o.Reset(body)
	for _, field := range [...]struct{ name, want string }{{"kind", kind}, {"apiVersion", apiVersion}} {
		if got := o.Get(field.name).String(); got != field.want {
			return Answer{}, errors.Join(o.Err(), fmt.Errorf("cannot read ImageReview: %s: got %.80q, want %q", field.name, got, field.want))
		}
	}
	spec := o.Get("spec")
	namespace := spec.Get("namespace").String()
	var rules []*Rule
	for i := range p.Rules {
		if p.Rules[i].isFor(namespace) {
			rules = append(rules, &p.Rules[i])
		}
	}
	answer := Answer{Allowed: true}
	refused := 0
	if len(rules) > 0 {
		for i, container := range spec.Get("containers").Elements() {
			if err := ctx.Err(); i%imagesMax == 0 && err != nil {
				return Answer{}, err
			}
			image := container.Get("image").String()
			rule, why := refusalOf(rules, image)
			if why == "" {
				continue
			}
			if refused++; refused == 1 {
				answer = Answer{Namespace: codec.TruncateString(namespace, imageBytesMax), Rule: rule}
			}
			if refused <= refusalsMax {
				answer.Reason += fmt.Sprintf("; image %s may not run: %s", codec.TruncateString(image, imageBytesMax), why)
			}
		}
	}
	if err := o.Err(); err != nil {
		return Answer{}, fmt.Errorf("cannot read ImageReview: %w", err)
	}
	if refused > refusalsMax {
		answer.Reason += fmt.Sprintf("; and %d more", refused-refusalsMax)
	}
	if refused > 0 {
		answer.Reason = answer.Reason[len("; "):]
	}
	return answer, nil
}

// refusalOf returns which of the rules refuses an image, and why; "" if none does.
func refusalOf(rules []*Rule, image string) (rule, why string) {
	if len(image) > nameBytesMax {
		return "", fmt.Sprintf("its name has %d bytes, want at most %d", len(image), nameBytesMax)
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err.Error()
	}
	i := slices.IndexFunc(rules, func(r *Rule) bool {
		why = r.refusal(named)
		return why != ""
	})
	if i < 0 {
		return "", ""
	}
	why = codec.TruncateString(why, imageBytesMax) + fmt.Sprintf(" (rule %s)", rules[i].Name)
	if rules[i].Message != "" {
		why += ": " + rules[i].Message
	}
	return rules[i].Name, why
}

// AppendJSON appends the answer to dst as an ImageReview in JSON.
func (a *Answer) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","metadata":{},"spec":{},"status":{"allowed":`...)
	if a.Allowed {
		return append(dst, `true}}`...)
	}
	dst = append(dst, `false,"reason":`...)
	dst = codec.AppendString(dst, a.Reason)
	if a.Rule != "" {
		dst = append(dst, `,"auditAnnotations":{"refused-by-rule":`...)
		dst = append(codec.AppendString(dst, a.Rule), '}')
	}
	return append(dst, `}}`...)
}
