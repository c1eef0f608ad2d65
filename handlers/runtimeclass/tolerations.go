package runtimeclass

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// tolerate adds the tolerations of a class to those of a pod and takes away what
// others cover, also among the pod's own (k8s.io/kubernetes pkg/util/tolerations
// MergeTolerations). It fails when ctx ends: it compares each with each.
func tolerate(ctx context.Context, pod *codec.Object, class []corev1.Toleration) error {
	var all []toleration
	for _, given := range pod.Get("spec", "tolerations").Elements() {
		all = append(all, read(given))
	}
	given := len(all)
	for _, t := range class {
		text, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("cannot write a toleration of the class: %w", err)
		}
		all = append(all, toleration{Toleration: t, text: string(text)})
	}
	merged, err := merge(ctx, all)
	if err != nil || len(merged) == 0 || len(merged) == given && given == len(all) {
		return err
	}
	pod.Set(pod.Compose(func(dst []byte) []byte {
		for i, t := range merged {
			dst = append(append(dst, "[,"[min(i, 1)]), t.text...)
		}
		return append(dst, ']')
	}), "spec", "tolerations")
	return nil
}

// A toleration and its JSON.
type toleration struct {
	corev1.Toleration
	text string
}

func read(value codec.Value) toleration {
	t := toleration{text: value.JSON(), Toleration: corev1.Toleration{
		Key:      value.Get("key").String(),
		Operator: corev1.TolerationOperator(value.Get("operator").String()),
		Value:    value.Get("value").String(),
		Effect:   corev1.TaintEffect(value.Get("effect").String()),
	}}
	if seconds, ok := value.Get("tolerationSeconds").Int64(); ok {
		t.TolerationSeconds = &seconds
	}
	return t
}

// merge returns the tolerations that no other one covers, of equal ones the
// first.
func merge(ctx context.Context, all []toleration) ([]toleration, error) {
	var merged []toleration
next:
	for i := range all {
		t := &all[i]
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("spec.tolerations: got %d, too many to compare in time: %w", len(all), err)
		}
		for j := range merged {
			if merged[j].covers(t) {
				continue next
			}
		}
		for j := i + 1; j < len(all); j++ {
			if !all[j].equals(t) && all[j].covers(t) {
				continue next
			}
		}
		merged = append(merged, *t)
	}
	return merged, nil
}

func (t *toleration) equals(u *toleration) bool {
	return t.Key == u.Key && t.Operator == u.Operator && t.Value == u.Value && t.Effect == u.Effect &&
		(t.TolerationSeconds == nil) == (u.TolerationSeconds == nil) &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds == *u.TolerationSeconds)
}

// covers reports whether t tolerates all that u does (isSuperset there).
func (t *toleration) covers(u *toleration) bool {
	if t.equals(u) {
		return true
	}
	if t.Key != u.Key && (t.Key != "" || t.Operator != corev1.TolerationOpExists) ||
		t.Effect != u.Effect && t.Effect != "" {
		return false
	}
	if t.Effect == corev1.TaintEffectNoExecute && t.TolerationSeconds != nil &&
		(u.TolerationSeconds == nil || *u.TolerationSeconds > *t.TolerationSeconds) {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		// So it does not cover one that leaves the operator out.
		return u.Operator == corev1.TolerationOpEqual && t.Value == u.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}
