package runtimeclass

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/tolerations"
)

// tolerate adds the tolerations of a class to those of a pod and takes away what
// others cover, also among the pod's own (k8s.io/kubernetes pkg/util/tolerations
// MergeTolerations). It fails when ctx ends: it compares each with each.
func tolerate(ctx context.Context, pod *codec.Object, class []corev1.Toleration) error {
	var all []toleration
	for _, given := range pod.Get("spec", "tolerations").Elements() {
		all = append(all, toleration{tolerations.Read(given), given.JSON()})
	}
	given := len(all)
	for _, t := range class {
		text, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("cannot write a toleration of the class: %w", err)
		}
		all = append(all, toleration{tolerations.Of(&t), string(text)})
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
	tolerations.Toleration
	text string
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
			if merged[j].Covers(&t.Toleration) {
				continue next
			}
		}
		for j := i + 1; j < len(all); j++ {
			if all[j].Toleration != t.Toleration && all[j].Covers(&t.Toleration) {
				continue next
			}
		}
		merged = append(merged, *t)
	}
	return merged, nil
}
