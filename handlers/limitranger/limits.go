package limitranger

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// violations are the messages of all violated limits, without duplicates. They implement
// error with the text of upstream's aggregate (k8s.io/apimachinery pkg/util/errors).
type violations struct {
	review   *codec.Review
	ofPods   bool // the resources of a pod itself count
	messages []string
	known    map[string]bool
	length   int // of all messages
}

// Error implements error.
func (v *violations) Error() string {
	if len(v.messages) == 1 {
		return v.messages[0]
	}
	return "[" + strings.Join(v.messages, ", ") + "]"
}

// add adds the messages about the amounts of several resources. Their order is random
// upstream; here they are sorted.
func (v *violations) add(messages []string) {
	slices.Sort(messages)
	for _, message := range messages {
		if v.known[message] {
			continue
		}
		if v.known == nil {
			v.known = make(map[string]bool)
		}
		v.known[message] = true
		v.messages = append(v.messages, message)
		v.length += len(message)
	}
}

// checkClaim checks the spec of a PersistentVolumeClaim. It returns an error if the spec
// cannot be read.
func (v *violations) checkClaim(items []corev1.LimitRangeItem, spec codec.Value) error {
	asked := containerAmounts{spec}
	for i := range items {
		item := &items[i]
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		if err := v.check(item.Min, asked.request, belowMin(item.Type)); err != nil {
			return err
		}
		if err := v.check(item.Max, asked.request, aboveMaxRequest(item.Type)); err != nil {
			return err
		}
	}
	return nil
}

// checkPod checks the spec of a pod. It returns an error if the spec cannot be read.
func (v *violations) checkPod(items []corev1.LimitRangeItem, spec codec.Value) error {
	for i := range items {
		item := &items[i]
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, list := range lists {
				for _, container := range spec.Get(list.field).Elements() {
					if err := v.checkItem(item, containerAmounts{container}.both); err != nil {
						return err
					}
				}
			}
		case corev1.LimitTypePod:
			if err := v.checkItem(item, podAmounts{spec, v.ofPods}.both); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkItem checks amounts against all limits of an item.
func (v *violations) checkItem(item *corev1.LimitRangeItem, both source) error {
	if err := v.check(item.Min, both, belowMin(item.Type)); err != nil {
		return err
	}
	if err := v.check(item.Max, both, aboveMax(item.Type)); err != nil {
		return err
	}
	return v.check(item.MaxLimitRequestRatio, both, aboveRatio(item.Type))
}

// A source reads the request and the limit of a resource.
type source func(resource string) (request, limit amount, err error)

// A rule returns a message if the amounts violate a limit, otherwise "".
type rule func(name string, enforced resource.Quantity, request, limit amount) string

// check checks the amounts of the resources that a limit names. It reads only these.
func (v *violations) check(limits corev1.ResourceList, from source, wrong rule) error {
	if v.length > admission.MessagesBytesMax {
		return nil
	}
	var messages []string
	for name, enforced := range limits {
		if err := v.review.Err(); err != nil {
			return err // reading the containers failed, and would fail for the next resource, too
		}
		request, limit, err := from(string(name))
		if err != nil {
			return err
		}
		if message := wrong(string(name), enforced, request, limit); message != "" {
			messages = append(messages, message)
		}
	}
	v.add(messages)
	return nil
}

// values returns the amounts in thousandths, or in whole units if one of them is
// too large for that (requestLimitEnforcedValues there).
func values(request, limit, enforced *resource.Quantity) (int64, int64, int64) {
	r, l, e := request.Value(), limit.Value(), enforced.Value()
	if max(r, l, e) <= resource.MaxMilliValue {
		return request.MilliValue(), limit.MilliValue(), enforced.MilliValue()
	}
	return r, l, e
}

func belowMin(kind corev1.LimitType) rule {
	return func(name string, enforced resource.Quantity, request, limit amount) string {
		r, l, e := values(&request.Quantity, &limit.Quantity, &enforced)
		usage := func(what string) string {
			return fmt.Sprintf("minimum %s usage per %s is %s%s", name, kind, enforced.String(), what)
		}
		switch {
		case !request.given:
			return usage(".  No request is specified")
		case r < e:
			return usage(", but request is " + request.String())
		case limit.given && l < e:
			return usage(", but limit is " + limit.String())
		}
		return ""
	}
}

func aboveMax(kind corev1.LimitType) rule {
	return func(name string, enforced resource.Quantity, request, limit amount) string {
		r, l, e := values(&request.Quantity, &limit.Quantity, &enforced)
		usage := func(what string) string {
			return fmt.Sprintf("maximum %s usage per %s is %s%s", name, kind, enforced.String(), what)
		}
		switch {
		case !limit.given:
			return usage(".  No limit is specified")
		case l > e:
			return usage(", but limit is " + limit.String())
		case request.given && r > e:
			return usage(", but request is " + request.String())
		}
		return ""
	}
}

// aboveMaxRequest is aboveMax for objects that have requests, but no limits.
func aboveMaxRequest(kind corev1.LimitType) rule {
	return func(name string, enforced resource.Quantity, request, _ amount) string {
		r, _, e := values(&request.Quantity, new(resource.Quantity), &enforced)
		switch {
		case !request.given:
			return fmt.Sprintf("maximum %s usage per %s is %s.  No request is specified", name, kind, enforced.String())
		case r > e:
			return fmt.Sprintf("maximum %s usage per %s is %s, but request is %s", name, kind, enforced.String(), request.String())
		}
		return ""
	}
}

func aboveRatio(kind corev1.LimitType) rule {
	return func(name string, enforced resource.Quantity, request, limit amount) string {
		r, l, _ := values(&request.Quantity, &limit.Quantity, &enforced)
		ratio := func(what string) string {
			return fmt.Sprintf("%s max limit to request ratio per %s is %s, but %s", name, kind, enforced.String(), what)
		}
		switch {
		case r == 0:
			return ratio("no request is specified or request is 0")
		case l == 0:
			return ratio("no limit is specified or limit is 0")
		}
		shown := float64(l) / float64(r)
		got, most := shown, float64(enforced.Value())
		if enforced.Value() <= resource.MaxMilliValue {
			got, most = shown*1000, float64(enforced.MilliValue())
		}
		if got > most {
			return ratio(fmt.Sprintf("provided ratio is %f", shown))
		}
		return ""
	}
}
