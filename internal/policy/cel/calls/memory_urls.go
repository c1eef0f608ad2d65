package calls

import (
	"net/url"
	"strings"

	"github.com/google/cel-go/common/types/ref"
)

func urlOf(args []ref.Val) made {
	n := lengthOf(args[0])
	return made{result: mapBytes + 3*n, passing: mapBytes + messageBytes*n}
}

func escapedPath(args []ref.Val) made {
	u, ok := args[0].Value().(*url.URL)
	if !ok {
		return made{}
	}
	return made{result: 3 * len(u.Path), passing: 3 * len(u.Path)}
}

func query(args []ref.Val) made {
	u, ok := args[0].Value().(*url.URL)
	if !ok {
		return made{}
	}
	n := strings.Count(u.RawQuery, "&") + 1
	return made{result: mapBytes + queryBytes*n + len(u.RawQuery), passing: queryBytes*n + len(u.RawQuery)}
}
