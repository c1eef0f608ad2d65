package expressions

import (
	"encoding/json"
	"math/rand/v2"
	"strings"

	kjson "sigs.k8s.io/json"
)

// spoilt are values with which a test may replace the value of a field.
var spoilt = []string{
	`null`, `true`, `0`, `-1`, `1.5`, `1e3`, `-0.0`, `9223372036854775807`, `9223372036854775808`, `12345678901234567890123`, `1E-7`, `0.1e1`,
	`""`, `"ä€😀\u0000\n"`, `"` + strings.Repeat("a", 300) + `"`, `"\ud800"`, `[]`, `{}`, `[null]`, `{"a":{"a":{"a":{"a":null}}}}`,
	`["a","a","a"]`, `[1,1.0,"1",true,null,{}]`, `{"name":"a"}`, `"2024-01-02T03:04:05Z"`, `"1.2.3"`, `"10.0.0.1"`, `"100m"`,
}

// Spoil returns a JSON object with up to four values replaced, mostly by values of other
// types. It does not change kind, apiVersion and metadata. Only a list can become a list,
// and a new map has at most one entry. Otherwise, the value of an expression could depend
// on the order of map entries. Spoil returns an error if content is not a JSON object.
func Spoil(r *rand.Rand, content []byte) ([]byte, error) {
	var root map[string]json.RawMessage
	if err := kjson.UnmarshalCaseSensitivePreserveInts(content, &root); err != nil {
		return nil, err
	}
	for range 1 + r.IntN(4) {
		names := sorted(root)
		name := names[r.IntN(len(names))]
		switch name {
		case "apiVersion", "kind", "metadata":
			name = "spec"
		}
		root[name] = spoil(r, root[name], r.IntN(6))
	}
	return json.Marshal(root)
}

func spoil(r *rand.Rand, v json.RawMessage, depth int) json.RawMessage {
	var object map[string]json.RawMessage
	var list []json.RawMessage
	switch {
	case depth > 0 && kjson.UnmarshalCaseSensitivePreserveInts(v, &object) == nil && len(object) > 0:
		names := sorted(object)
		name := names[r.IntN(len(names))]
		object[name] = spoil(r, object[name], depth-1)
		return encode(object)
	case depth > 0 && kjson.UnmarshalCaseSensitivePreserveInts(v, &list) == nil && len(list) > 0:
		i := r.IntN(len(list))
		list[i] = spoil(r, list[i], depth-1)
		return encode(list)
	}
	other := spoilt[r.IntN(len(spoilt))]
	if len(v) > 0 && v[0] != '[' && other[0] == '[' {
		other = "null"
	}
	return json.RawMessage(other)
}

func encode(v any) json.RawMessage {
	content, err := json.Marshal(v)
	if err != nil {
		panic(err) // of JSON that was read
	}
	return content
}
