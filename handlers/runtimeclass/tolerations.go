package runtimeclass

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/tolerations"
)

// tolerate adds the tolerations of a class to those of a pod and takes away what
// others cover, also among the pod's own (k8s.io/kubernetes pkg/util/tolerations
// MergeTolerations). It fails when ctx ends.
func tolerate(ctx context.Context, pod *codec.Object, class []corev1.Toleration) error {
	var all []tolerations.Toleration
	var texts []string
	for _, given := range pod.Get("spec", "tolerations").Elements() {
		all, texts = append(all, tolerations.Read(given)), append(texts, given.JSON())
	}
	given := len(all)
	for i := range class {
		text, err := json.Marshal(class[i])
		if err != nil {
			return fmt.Errorf("cannot write a toleration of the class: %w", err)
		}
		all, texts = append(all, tolerations.Of(&class[i])), append(texts, string(text))
	}
	kept, err := tolerations.Kept(ctx, all)
	if err != nil || len(all) == 0 || given == len(all) && !slices.Contains(kept, false) {
		return err
	}
	pod.Set(pod.Compose(func(dst []byte) []byte {
		separator := byte('[')
		for i, text := range texts {
			if kept[i] {
				dst = append(append(dst, separator), text...)
				separator = ','
			}
		}
		return append(dst, ']')
	}), "spec", "tolerations")
	return nil
}
