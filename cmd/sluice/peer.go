package main

import (
	"context"
	"fmt"
	"net"
	"os/user"
	"strconv"
)

type peerKey struct{}

// withPeer notes who is at the other end of a connection.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	name := "somebody"
	if uid, ok := peerUser(c); ok {
		name = userName(uid)
	}
	return context.WithValue(ctx, peerKey{}, name)
}

func peerName(ctx context.Context) string {
	name, _ := ctx.Value(peerKey{}).(string)
	return name
}

// userName is the name of a user, or the number of one that has none here.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %s", id)
}
