package compile

// Steps is how many fleets were made from the one before them.
func (c *Cache) Steps() int { return c.steps }
