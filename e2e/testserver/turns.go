package main

import (
	"context"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// turns sets a ConfigMap's <key>-now to the next of the values that its <key> lists, with each
// call, until the last. So it changes what it set itself, which no other plugin may do.
func turns(key string) decide {
	return func(_ context.Context, review *codec.Review) admission.Result {
		data := review.Object.Get("data")
		values := strings.Split(data.Get(key).String(), ",")
		next := 0
		if now := data.Get(key + "-now"); now.Exists() {
			next = slices.Index(values, now.String()) + 1
		}
		if next < len(values) && values[next] != "" {
			review.Object.SetString(values[next], "data", key+"-now")
		}
		return admission.Allowed()
	}
}
