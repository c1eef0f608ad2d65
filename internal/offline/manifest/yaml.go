package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v2"

	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// A syntaxError means that a document is not YAML.
type syntaxError struct{ error }

// toJSON converts a YAML document as kubectl does (sigs.k8s.io/yaml YAMLToJSON). It refuses
// ambiguous documents: duplicate members, and a second document, which kubectl leaves out.
func toJSON(text []byte) ([]byte, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.SetStrict(true) // refuses duplicate members
	var value, other any
	if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
		return []byte("null"), nil
	} else if err != nil {
		if yaml.Unmarshal(text, &other) != nil {
			return nil, &syntaxError{strictyaml.SyntaxError(err, text)} // for kubectl too, which is not strict
		}
		return nil, err
	}
	if err := decoder.Decode(&other); err == nil {
		return nil, errors.New("got a second document that does not begin with a line ---")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	value, err := stringKeys(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// stringKeys returns the value with strings as the keys of its maps, as JSON has them.
func stringKeys(value any) (any, error) {
	switch value := value.(type) {
	case map[any]any:
		members := make(map[string]any, len(value))
		for key, member := range value {
			name, err := memberName(key)
			if err != nil {
				return nil, err
			}
			if _, twice := members[name]; twice {
				return nil, fmt.Errorf("key %q already set in map, once as another type", name)
			}
			if members[name], err = stringKeys(member); err != nil {
				return nil, err
			}
		}
		return members, nil
	case []any:
		for i := range value {
			var err error
			if value[i], err = stringKeys(value[i]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

func memberName(key any) (string, error) {
	switch key := key.(type) {
	case string:
		return key, nil
	case int:
		return strconv.Itoa(key), nil
	case bool:
		return strconv.FormatBool(key), nil
	}
	return "", fmt.Errorf("got the key %v, want a text", key)
}
