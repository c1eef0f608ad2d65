package bench

import (
	"fmt"
	"strings"
)

// Limits on the size of synthetic reviews, in bytes. The smallest is a small Pod. The
// largest is an UPDATE, which contains two objects: kube-apiserver reads objects of up to
// 3 MiB.
const (
	SyntheticBytesMin = 1 << 10
	SyntheticBytesMax = 6<<20 + 1<<12
)

// Synthetic creates a review of a Pod. size is the length of the review in bytes.
// operation is CREATE, or UPDATE with an old object of about the same size. The size
// comes from many environment variables of a container, because real large objects also
// consist of many small values. Synthetic returns an error if the size is too small for
// the operation, or outside of the limits.
func Synthetic(operation string, size int) (*Recording, error) {
	operation = strings.ToUpper(operation)
	if operation != "CREATE" && operation != "UPDATE" {
		return nil, fmt.Errorf("bench: got operation %q for a synthetic review, want CREATE or UPDATE", operation)
	}
	least, one := len(syntheticReview(operation, 0, 0)), len(syntheticReview(operation, 1, 0))
	each := len(syntheticReview(operation, 2, 0)) - one
	if size < max(least, SyntheticBytesMin) || size > SyntheticBytesMax {
		return nil, fmt.Errorf("bench: got %d bytes for a synthetic %s review, want %d to %d",
			size, operation, max(least, SyntheticBytesMin), SyntheticBytesMax)
	}
	variables, used := 0, least
	if size >= one {
		variables = 1 + (size-one)/each
		used = one + (variables-1)*each
	}
	name := fmt.Sprintf("pod-%s-%d", strings.ToLower(operation), size)
	r, err := NewRecording(name, []byte(syntheticReview(operation, variables, size-used)))
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	r.Kind += " of " + Bytes.Format(float64(size)) // each size is counted separately
	return r, nil
}

// syntheticReview renders a review as kube-apiserver does. The padding is an annotation of the
// object, so an UPDATE changes it too.
func syntheticReview(operation string, variables, padding int) string {
	const kind, resource = `{"group":"","version":"v1","kind":"Pod"}`, `{"group":"","version":"v1","resource":"pods"}`
	object, oldObject, options := syntheticPod(variables, padding), "null", "CreateOptions"
	if operation == "UPDATE" {
		oldObject, options = syntheticPod(variables, 0), "UpdateOptions"
	}
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"` + strings.Repeat("0", uidBytes) +
		`","kind":` + kind + `,"resource":` + resource + `,"requestKind":` + kind + `,"requestResource":` + resource +
		`,"name":"big","namespace":"bench","operation":"` + operation +
		`","userInfo":{"username":"bench","groups":["system:authenticated"]},"object":` + object + `,"oldObject":` + oldObject +
		`,"dryRun":false,"options":{"kind":"` + options + `","apiVersion":"meta.k8s.io/v1"}}}` + "\n"
}

func syntheticPod(variables, padding int) string {
	var b strings.Builder
	b.WriteString(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"big","namespace":"bench","annotations":{"pad":"`)
	b.WriteString(strings.Repeat("x", padding))
	b.WriteString(`"}},"spec":{"containers":[{"name":"main","image":"registry.example/app:1.2.3","env":[`)
	for i := range variables {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"VARIABLE_%06d","value":"the value of variable %06d"}`, i, i)
	}
	b.WriteString(`],"imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always"},"status":{}}`)
	return b.String()
}
