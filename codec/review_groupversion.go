package codec

import "strings"

func (v Value) groupVersionKind() (k GroupVersionKind) {
	k.Group, k.Version, k.Kind = v.groupVersion("kind")
	return k
}

func (v Value) groupVersionResource() (g GroupVersionResource) {
	g.Group, g.Version, g.Resource = v.groupVersion("resource")
	return g
}

// groupVersion reads the strings "group", "version" and the one named last in
// one pass.
func (v Value) groupVersion(last string) (group, version, name string) {
	if group, version, name, ok := predictedGroupVersion(v.text(), last); ok {
		return group, version, name
	}
	for member, value := range v.Members() {
		switch member {
		case "group":
			group = value.String()
		case "version":
			version = value.String()
		case last:
			name = value.String()
		}
	}
	return group, version, name
}

// predictedGroupVersion is groupVersion for text as kube-apiserver writes it.
func predictedGroupVersion(text, last string) (group, version, name string, ok bool) {
	if group, text, ok = predictedString(text, `{"group":"`); !ok {
		return "", "", "", false
	}
	if version, text, ok = predictedString(text, `,"version":"`); !ok {
		return "", "", "", false
	}
	if text, ok = strings.CutPrefix(text, `,"`); !ok {
		return "", "", "", false
	}
	if text, ok = strings.CutPrefix(text, last); !ok {
		return "", "", "", false
	}
	name, text, ok = predictedString(text, `":"`)
	return group, version, name, ok && strings.HasPrefix(text, "}")
}

// predictedString cuts what comes before a string, and the string, which must
// be plain, off the text.
func predictedString(text, before string) (plain, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, before); !ok {
		return "", "", false
	}
	end := strings.IndexByte(rest, '"')
	if end < 0 || !isPlain(rest[:end]) {
		return "", "", false
	}
	return rest[:end], rest[end+1:], true
}
