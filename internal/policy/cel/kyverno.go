package cel

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// timeNow is the name of Kyverno's function for the time of the call. An expression that calls it has no result that
// others can share.
const timeNow = "time.now"

// hashes are Kyverno's functions for digests of texts.
var hashes = map[string]func(text []byte) []byte{
	"md5":    func(text []byte) []byte { sum := md5.Sum(text); return sum[:] },
	"sha1":   func(text []byte) []byte { sum := sha1.Sum(text); return sum[:] },
	"sha256": func(text []byte) []byte { sum := sha256.Sum256(text); return sum[:] },
}

// kyvernoOptions declare Kyverno's functions that need nothing but their arguments and the time, as
// github.com/kyverno/sdk does in extensions/cel/libs/hash and extensions/cel/libs/time. Since Kyverno 1.18, those for
// digests also have names that begin with "hash.".
var kyvernoOptions = func() []cel.EnvOption {
	text, when := cel.StringType, cel.TimestampType
	options := []cel.EnvOption{
		cel.Function(timeNow, cel.Overload("time_now", nil, when, cel.FunctionBinding(func(...ref.Val) ref.Val {
			return types.Timestamp{Time: time.Now().UTC()}
		}))),
		cel.Function("time.truncate", cel.Overload("time_truncate", []*cel.Type{when, cel.DurationType}, when, cel.BinaryBinding(truncate))),
		cel.Function("time.toCron", cel.Overload("time_to_cron", []*cel.Type{when}, text, cel.UnaryBinding(toCron))),
	}
	for name, sum := range hashes {
		binding := cel.UnaryBinding(func(v ref.Val) ref.Val {
			return types.String(hex.EncodeToString(sum([]byte(v.(types.String)))))
		})
		options = append(options,
			cel.Function(name, cel.Overload(name+"_string_non_prefixed", []*cel.Type{text}, text, binding)),
			cel.Function("hash."+name, cel.Overload(name+"_string_prefixed", []*cel.Type{text}, text, binding)))
	}
	return append(append(options, dataOptions...), x509Option)
}()

// hashCosts are the costs of digests: that of reading the text, with at least 100 MB/s.
var hashCosts = func() (all []interpreter.CostTrackerOption) {
	for name := range hashes {
		for _, suffix := range []string{"_string_non_prefixed", "_string_prefixed"} {
			all = append(all, interpreter.OverloadCostTracker(name+suffix, func(args []ref.Val, _ ref.Val) *uint64 {
				return new(1 + textCost(args[0]))
			}))
		}
	}
	return all
}()

// truncate is time.truncate(timestamp, duration): down to a multiple of the duration since the year 1.
func truncate(at, to ref.Val) ref.Val {
	return types.Timestamp{Time: at.(types.Timestamp).Truncate(to.(types.Duration).Duration)}
}

// toCron is time.toCron(timestamp): minute, hour, day, month and weekday in the time zone of the timestamp.
func toCron(at ref.Val) ref.Val {
	t := at.(types.Timestamp).Time
	return types.String(fmt.Sprintf("%d %d %d %d %d", t.Minute(), t.Hour(), t.Day(), t.Month(), t.Weekday()))
}
